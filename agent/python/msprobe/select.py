"""Predicates over the calls of a model, for ``select``: ``Linear & under("*.mlp") & (depth <= 3) & ~name("*.norm")``.

Any name of this module that begins with a capital is the predicate that a module's class has this name:
``from msprobe.select import Linear, depth, name, under``. config.json takes the text of a predicate as ``select``.
"""

from __future__ import annotations

import builtins


class Predicate:
    """One predicate, or several that are combined by &, | and ~. Immutable; its text is what is compiled."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<select {self._text}>"

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(f"({self} & {other})") if isinstance(other, Predicate) else NotImplemented

    def __or__(self, other: Predicate) -> Predicate:
        return Predicate(f"({self} | {other})") if isinstance(other, Predicate) else NotImplemented

    def __invert__(self) -> Predicate:
        return Predicate(f"~{self}")

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is neither true nor false; combine predicates by &, | and ~, in brackets")


class _Depth:
    """The number of parts of a module's name: ``depth <= 3``."""

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, parts: int) -> Predicate:
        return Predicate(f"depth(<{parts:d})")

    def __le__(self, parts: int) -> Predicate:
        return Predicate(f"depth(<={parts:d})")

    def __eq__(self, parts: object) -> Predicate:  # type: ignore[override]
        return Predicate(f"depth(=={parts:d})")

    def __ge__(self, parts: int) -> Predicate:
        return Predicate(f"depth(>={parts:d})")

    def __gt__(self, parts: int) -> Predicate:
        return Predicate(f"depth(>{parts:d})")


depth = _Depth()


def type(glob: str | builtins.type) -> Predicate:
    """The class of the module has this name."""
    return _of("type", glob if isinstance(glob, str) else glob.__name__)


def name(glob: str) -> Predicate:
    """The name of the module in the model matches; the model's own is empty."""
    return _of("name", glob)


def under(glob: str) -> Predicate:
    """The module is inside of one whose name matches."""
    return _of("under", glob)


def api(glob: str) -> Predicate:
    """The call is one of this API: ``Functional.linear``, or ``linear`` of any prefix."""
    return _of("api", glob)


def _of(predicate: str, glob: str) -> Predicate:
    quote = "'" if '"' in glob else '"'
    return Predicate(f"{predicate}({quote}{glob}{quote})")


def __getattr__(attribute: str) -> Predicate:
    if attribute[:1].isupper():
        return Predicate(attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


__all__ = ["Predicate", "api", "depth", "name", "type", "under"]

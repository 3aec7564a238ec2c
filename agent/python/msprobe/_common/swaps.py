"""Putting an interception where a Python function or an attribute is, and back.

A Python function keeps its identity: it is given other code, whose one constant is our callable; that callable runs a
twin which has the old code. Where an object cannot carry the interception, another stands at its attribute.
"""

import inspect
import re
import types
import warnings
from collections.abc import Callable
from typing import Any, Union

with warnings.catch_warnings():
    warnings.simplefilter("ignore", SyntaxWarning)
    _SHIM = compile("def shim(*args, **kwargs): return 'callable'(args, kwargs)", "<msprobe>", "exec").co_consts[0]


def _extension() -> Any:
    """torch's, whose functions alone carry code of ours."""
    from msprobe import _agent

    return _agent


# Told of each pair (what was replaced, what replaces it); a framework's compiler that looks at functions is one.
on_replacement: list[Callable[[Any, Any], None]] = []


def _note_replacement(original: Any, replacement: Any) -> None:
    for tell in on_replacement:
        tell(original, replacement)


def read_names(text: str) -> dict[str, list[str]]:
    """The sections of api_names.txt: heading -> names."""
    sections: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"\[(.+)\]", line):
            heading = match[1]
            sections[heading] = []
        elif line and not line.startswith("#"):
            sections[heading] += line.split()
    return sections


def copied(function: types.FunctionType) -> types.FunctionType:
    """Another function of the same code."""
    twin = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__, twin.__annotations__ = function.__kwdefaults__, function.__annotations__
    twin.__qualname__, twin.__doc__ = function.__qualname__, function.__doc__
    twin.__dict__.update(function.__dict__)
    return twin


class CodeSwap:
    """Other code for one Python function, which calls what intercept(twin) gives."""

    def __init__(self, function: types.FunctionType, intercept: Callable[[types.FunctionType], Any]) -> None:
        self.function = function
        self.original = function.__code__
        interceptor = _extension().applied(intercept(copied(function)))
        consts = tuple(interceptor if const == "callable" else const for const in _SHIM.co_consts)
        self.shim = _SHIM.replace(
            co_consts=consts,
            co_freevars=function.__code__.co_freevars,
            co_name=function.__code__.co_name,
            co_filename=function.__code__.co_filename,  # inspect.getsource shows the function's own
            co_firstlineno=function.__code__.co_firstlineno,
        )
        _extension().hide_code(self.shim)
        _note_replacement(self.original, self.shim)

        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None

    def install(self) -> None:
        self.function.__code__ = self.shim
        if self.signature is not None:
            self.function.__signature__ = self.signature  # type: ignore[attr-defined]

    def restore(self) -> None:
        self.function.__code__ = self.original
        self.function.__dict__.pop("__signature__", None)


class AttributeSwap:
    """Another object at one attribute, where the object itself cannot carry the interception."""

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self.owner, self.name = owner, name
        # As it stands there: a class holds functions that what is got from it no longer binds. None: it is inherited.
        self.original, self.replacement = self._standing(), replacement
        got = replacement.__func__ if isinstance(replacement, staticmethod) else replacement
        _note_replacement(getattr(owner, name), got)

    def install(self) -> None:
        if self._standing() is self.original:
            setattr(self.owner, self.name, self.replacement)

    def restore(self) -> None:
        if self._standing() is not self.replacement:  # somebody else's
            return
        if self.original is None:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)

    def _standing(self) -> Any:
        return getattr(self.owner, "__dict__", {}).get(self.name)


Swap = Union[CodeSwap, AttributeSwap]


def recorded(function: types.FunctionType, kind: str, **options: Any) -> CodeSwap:
    """kind and options as _agent.intercept has them."""
    return CodeSwap(function, lambda twin: _extension().intercept(twin, kind, **options))


def stand_in(owner: Any, name: str, api: Any) -> list[Swap]:
    """Swaps by which calls of owner.name are recorded, and calls of the same function by other names are not."""
    original = getattr(owner, name)
    replacement: Any
    if isinstance(original, types.FunctionType):
        replacement = copied(original)
        swaps: list[Swap] = [recorded(replacement, "api", api=api)]
    else:
        replacement = _extension().intercept(original, "api", api=api)
        swaps = []
    if isinstance(inspect.getattr_static(owner, name, None), (staticmethod, classmethod)):
        replacement = staticmethod(replacement)  # what was got is bound already
    return [*swaps, AttributeSwap(owner, name, replacement)]

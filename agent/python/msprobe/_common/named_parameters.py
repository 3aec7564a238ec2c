"""The parameters of a training, each under one name, from the moment at which it needs a gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class NamedParameters:
    """Those of all models that were added. A frozen one is known by its name, and watched once it needs a gradient.

    watch(name, parameter): called when it begins to be watched.
    """

    def __init__(self, watch: Callable[[str, Any], None]) -> None:
        self._watch = watch
        self._watched: dict[Any, str] = {}
        self._frozen: dict[Any, str] = {}

    @property
    def watched(self) -> Mapping[Any, str]:
        """Names by parameter."""
        return self._watched

    @property
    def frozen(self) -> Mapping[Any, str]:
        """Names by parameter; none of them is watched."""
        return self._frozen

    def add(self, named: Iterable[tuple[str, Any]]) -> list[str]:
        """Returns the names of the frozen ones. A parameter that is known keeps its name, and is not returned."""
        fresh = [(name, each) for name, each in named if each not in self._watched and each not in self._frozen]
        frozen = []
        for name, parameter in distinct(fresh, {*self._watched.values(), *self._frozen.values()}):
            if parameter.requires_grad:
                self._begin(name, parameter)
            else:
                self._frozen[parameter] = name
                frozen.append(name)
        return frozen

    def watch_unfrozen(self, parameters: Iterable[Any]) -> None:
        """Of these, the ones that were frozen and need a gradient now."""
        for parameter in [each for each in parameters if each in self._frozen and each.requires_grad]:
            self._begin(self._frozen.pop(parameter), parameter)

    def _begin(self, name: str, parameter: Any) -> None:
        self._watched[parameter] = name
        self._watch(name, parameter)


def distinct(named: Sequence[tuple[str, Any]], taken: set[str]) -> Sequence[tuple[str, Any]]:
    """The parameters of a model; where another one has a name of them, all are called "1.fc.weight", or "2." ..."""
    if not any(name in taken for name, _ in named):
        return named
    number = next(n for n in itertools.count(1) if not any(f"{n}.{name}" in taken for name, _ in named))
    return [(f"{number}.{name}", parameter) for name, parameter in named]


__all__ = ["NamedParameters", "distinct"]

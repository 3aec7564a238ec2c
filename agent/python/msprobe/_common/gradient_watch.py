"""Task grad_probe: which parameters are looked at, when an optimizer is about to take their gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from msprobe._common import log
from msprobe._common.named_parameters import distinct


class GradientWatch:
    """Names of parameters that monitor() was given, in its order."""

    def __init__(self) -> None:
        self._references: list[tuple[str, weakref.ref[Any]]] = []
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._parameters)

    @property
    def _parameters(self) -> list[tuple[str, Any]]:
        """A model that is gone is not kept for its gradients."""
        found = ((name, reference()) for name, reference in self._references)
        return [(name, parameter) for name, parameter in found if parameter is not None]

    def add(self, named: Iterable[tuple[str, Any]]) -> None:
        """A parameter that is known keeps its first name."""
        living = self._parameters
        known = {id(parameter) for _, parameter in living}
        added = [(name, parameter) for name, parameter in named if id(parameter) not in known]
        every = [*living, *distinct(added, {name for name, _ in living})]
        self._references = [(name, weakref.ref(parameter)) for name, parameter in every]

    def tell_unknown(self, wanted: list[str]) -> None:
        """Says once which of the names in param_list no parameter has."""
        names = {name for name, _ in self._parameters}
        unknown = [name for name in wanted if name not in names and name not in self._told]
        self._told.update(unknown)
        if unknown:
            log.warning(f"param_list names {unknown[0]!r}, which is no parameter that debugger.monitor() was given")

    def gradients(self, wanted: list[str], gradient_of: Callable[[Any], Any]) -> list[tuple[str, Any]]:
        """The gradients that are there now, of the parameters in param_list; of all, if it is empty.

        gradient_of(parameter): its gradient, or None where it has none now.
        """
        chosen = set(wanted)
        found = []
        for name, parameter in self._parameters:
            if chosen and name not in chosen:
                continue
            gradient = gradient_of(parameter)
            if gradient is not None:
                found.append((name, gradient))
        return found


__all__ = ["GradientWatch"]

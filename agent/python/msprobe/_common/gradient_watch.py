"""Task grad_probe: which parameters are looked at, when an optimizer is about to take their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msprobe._common import log


class GradientWatch:
    """Names of parameters that monitor() was given, in its order.

    gradient_of(parameter): its gradient, or None where it has none now.
    """

    def __init__(self, gradient_of: Callable[[Any], Any]) -> None:
        self._gradient_of = gradient_of
        self._parameters: list[tuple[str, Any]] = []
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._parameters)

    def add(self, named: Iterable[tuple[str, Any]]) -> None:
        """A parameter that is known keeps its first name."""
        known = {id(parameter) for _, parameter in self._parameters}
        self._parameters += [(name, parameter) for name, parameter in named if id(parameter) not in known]

    def tell_unknown(self, wanted: list[str]) -> None:
        """Says once which of the names in param_list no parameter has."""
        names = {name for name, _ in self._parameters}
        unknown = [name for name in wanted if name not in names and name not in self._told]
        self._told.update(unknown)
        if unknown:
            log.warning(f"param_list names {unknown[0]!r}, which is no parameter that debugger.monitor() was given")

    def gradients(self, wanted: list[str]) -> list[tuple[str, Any]]:
        """The gradients that are there now, of the parameters in param_list; of all, if it is empty."""
        chosen = set(wanted)
        found = []
        for name, parameter in self._parameters:
            if chosen and name not in chosen:
                continue
            gradient = self._gradient_of(parameter)
            if gradient is not None:
                found.append((name, gradient))
        return found


__all__ = ["GradientWatch"]

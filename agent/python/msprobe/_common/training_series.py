"""Task monitor: which parameters of the models become series. Each framework derives its own observer of a training."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msprobe._common import log
from msprobe._common.native import extension

_EXPRESSION = re.compile(r"name-regex\((.*)\)", re.DOTALL)


class ParameterSeries:
    """debugger: of task monitor, with its session open. docs/monitoring.md lists the names of the series."""

    def __init__(self, debugger: Any) -> None:
        self._debugger = debugger
        self._after: Callable[[Any], None] | None = None  # told of each optimizer that has stepped
        self._listed: list[str] = []
        self._selected = ""
        self._wants: dict[str, bool] = {}  # by name, as list and select say
        self._places: dict[Any, str] = {}  # by parameter: the record of the module that it belongs to

    @property
    def _config(self) -> Any:
        return self._debugger.config

    @property
    def _agent(self) -> Any:
        return self._debugger._agent

    def _tell_frozen(self, names: list[str]) -> None:
        """Of parameters that need no gradient now."""
        if names:
            which = "parameter needs no gradient and is" if len(names) == 1 else "parameters need no gradient and are"
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            log.info(f"{len(names)} {which} not watched until an optimizer steps with one: {shown}")

    def _takes(self, name: str, parameter: Any) -> bool:
        config = self._config
        if not self._debugger.watches_step or self._agent is None:
            return False
        if (config.list, config.select) != (self._listed, self._selected):  # they may change while the program runs
            self._listed, self._selected, self._wants = config.list, config.select, {}
        if name not in self._wants:
            wanted = [_predicate(text) for text in config.list]
            is_selected = not config.select or extension.Selector(config.select).takes_module(self._places[parameter])
            self._wants[name] = is_selected and (not wanted or any(wants(name) for wants in wanted))
        return self._wants[name]


def _predicate(text: str) -> Callable[[str], bool]:
    """Of an element of `list`: a part of the name, or an expression in it."""
    found = _EXPRESSION.fullmatch(text)
    if found is None:
        return lambda name: text in name
    expression = re.compile(found[1])
    return lambda name: expression.search(name) is not None


__all__ = ["ParameterSeries"]

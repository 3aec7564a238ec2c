"""msprobe.watch, whatever the framework: a training run becomes series of scalars by one line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe.select import Predicate


class _Steps:
    """Ends a step of the debugger each time that the last of the optimizers has stepped."""

    def __init__(self, debugger: Any, optimizers: list[Any]) -> None:
        self._debugger, self._optimizers = debugger, optimizers

    def stepped(self, optimizer: Any) -> None:
        if optimizer is not self._optimizers[-1]:
            return
        debugger = self._debugger
        debugger._stop()
        debugger._end_step(True)
        try:
            debugger._start([], None, None, None)
        except MsprobeError as error:
            log.warning(f"nothing is captured: {error}")


def begin(
    kind: Any,
    models: list[Any],
    optimizers: list[Any],
    *,
    config_path: str | os.PathLike[str] | None,
    rank_id: int | None,
    select: Predicate | str | None,
    model_series: Sequence[str] | None = None,
    communication: bool = False,
) -> None:
    """Task monitor, without any other call. kind: the framework's class of debuggers."""
    if not optimizers or not models:
        raise MsprobeError("watch takes a model and its optimizer; one of the two is missing")
    if kind._instance is None:
        chosen: dict[str, Any] = {} if config_path else {"task": "monitor", "level": "L0"}
        kind(config_path, **chosen, select=select)
        if model_series is not None:
            kind._the()._give(model_series=list(model_series))
    else:
        if select is not None:
            kind(select=select)  # which says that the first one stays
        if model_series is not None:
            log.warning(
                "watch: model_series is ignored; the configuration of the first PrecisionDebugger has the field"
            )
    debugger = kind._the()
    if debugger.config.task != "monitor":
        raise MsprobeError(
            f"watch: the task of this process's PrecisionDebugger is {debugger.config.task!r}; it should be 'monitor'"
        )
    debugger._update_rank(rank_id)
    flat = [part for each in models for part in (each if isinstance(each, list) else [each])]
    debugger.watch(flat, optimizers, _Steps(debugger, optimizers).stepped, communication=communication)
    debugger._start(models, None, rank_id, None)


__all__ = ["begin"]

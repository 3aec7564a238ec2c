"""msprobe.watch, whatever the framework: a training run becomes series of scalars by one line."""

from __future__ import annotations

import atexit
import os
import sys
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


def _tell_if_none_ended(debugger: Any) -> None:
    if debugger.service.loop == 0 and os.getpid() == debugger._pid and not hasattr(sys, "last_value"):
        log.warning(
            "watch: the optimizer never stepped, so all that was logged belongs to step 0; "
            "give watch the optimizer whose step() the training calls"
        )


def begin(
    kind: Any,
    models: list[Any],
    optimizers: list[Any],
    *,
    config_path: str | os.PathLike[str] | None,
    rank_id: int | None,
    select: Predicate | str | None,
    **fields: Any,
) -> None:
    """Task monitor, without any other call. kind: the framework's class of debuggers. fields: of the configuration;
    None: as it has them."""
    if not optimizers or not models:
        raise MsprobeError("watch takes a model and its optimizer; one of the two is missing")
    given = {name: value for name, value in fields.items() if value is not None}
    chosen: dict[str, Any] = {} if config_path else {"task": "monitor", "level": "L0"}
    is_first = kind._instance is None
    if is_first or config_path is not None or select is not None:
        kind(config_path, **chosen, select=select)  # a second one says that the first one stays
    debugger = kind._the()
    try:
        if is_first and given:
            debugger._give(**given)
        if debugger.config.task != "monitor":
            raise MsprobeError(
                f"watch: the task of this process's PrecisionDebugger is {debugger.config.task!r}; "
                "it should be 'monitor'"
            )
    except MsprobeError:
        if is_first:
            debugger._withdraw()
        raise
    for field in () if is_first else given:
        log.warning(f"watch: {field} is ignored; the configuration of the first PrecisionDebugger has the field")
    if debugger.training is None:
        atexit.register(_tell_if_none_ended, debugger)
    debugger._update_rank(rank_id)
    flat = [part for each in models for part in (each if isinstance(each, list) else [each])]
    debugger.watch(flat, optimizers, _Steps(debugger, optimizers).stepped)
    debugger._start(models, None, rank_id, None)


__all__ = ["begin"]

"""msprobe.watch: a training run becomes series of scalars by one line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from msprobe._common import arguments, log
from msprobe._common.errors import MsprobeError
from msprobe.pytorch.debugger import PrecisionDebugger
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


def watch(
    model: torch.nn.Module | list[torch.nn.Module],
    optimizer: Any,
    *,
    config_path: str | os.PathLike[str] | None = None,
    rank_id: int | None = None,
    communication: bool | None = None,
    select: Predicate | str | None = None,
    model_series: Sequence[str] | None = None,
) -> None:
    """Watches a training run: task monitor, without any other call. A step ends when the optimizer has stepped.

    model: a module, or a list of modules. optimizer: of torch.optim, what wraps one as its attribute optimizer, or a
    list, of which the last to step ends the step.
    config_path: a configuration with task monitor; default: the task's defaults.
    rank_id: names the rank where torch.distributed does not.
    communication: whether calls of torch.distributed become series too, as the field of that name says it.
    select: the modules that are watched, and their parameters: a predicate of msprobe.select, or its text.
    model_series: what only some models have ("attention", "experts", ...), likewise.
    """
    from msprobe.pytorch._training_watch import unwrapped

    optimizers = [unwrapped(each) for each in (optimizer if isinstance(optimizer, (list, tuple)) else [optimizer])]
    models = arguments.models(model, torch.nn.Module, "torch.nn.Module")
    if not optimizers or not models:
        raise MsprobeError("watch takes a model and its optimizer; one of the two is missing")
    given = {
        **({} if communication is None else {"communication": communication}),
        **({} if model_series is None else {"model_series": list(model_series)}),
    }
    if PrecisionDebugger._instance is None:
        chosen: dict[str, Any] = {} if config_path else {"task": "monitor", "level": "L0"}
        PrecisionDebugger(config_path, **chosen, select=select)
        if given:
            PrecisionDebugger._the()._give(**given)
    else:
        if select is not None:
            PrecisionDebugger(select=select)  # which says that the first one stays
        for field in given:
            log.warning(f"watch: {field} is ignored; the configuration of the first PrecisionDebugger has the field")
    debugger = PrecisionDebugger._the()
    if debugger.config.task != "monitor":
        raise MsprobeError(
            f"watch: the task of this process's PrecisionDebugger is {debugger.config.task!r}; it should be 'monitor'"
        )
    debugger._update_rank(arguments.rank_id(rank_id))
    flat = [part for each in models for part in (each if isinstance(each, list) else [each])]
    debugger.watch(flat, optimizers, _Steps(debugger, optimizers).stepped)
    debugger._start(models, None, rank_id, None)


__all__ = ["watch"]

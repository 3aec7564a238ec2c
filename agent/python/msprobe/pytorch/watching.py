"""msprobe.watch: a training run becomes series of scalars by one line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from msprobe._common import arguments
from msprobe._common.watching import begin
from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.select import Predicate


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
    begin(
        PrecisionDebugger,
        models,
        optimizers,
        config_path=config_path,
        rank_id=arguments.rank_id(rank_id),
        select=select,
        model_series=arguments.names(model_series, "model_series"),
        communication=communication,
    )


__all__ = ["watch"]

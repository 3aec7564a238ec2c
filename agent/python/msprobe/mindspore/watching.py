"""msprobe.watch: a training run becomes series of scalars by one line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mindspore import nn

from msprobe._common import arguments
from msprobe._common.errors import MsprobeError
from msprobe._common.watching import begin
from msprobe.mindspore._optimizers import unwrapped
from msprobe.mindspore.debugger import PrecisionDebugger
from msprobe.select import Predicate


def watch(
    model: nn.Cell | list[nn.Cell],
    optimizer: Any,
    *,
    config_path: str | os.PathLike[str] | None = None,
    rank_id: int | None = None,
    select: Predicate | str | None = None,
    communication: bool = False,
    model_series: Sequence[str] | None = None,
) -> None:
    """Watches a training run: task monitor, without any other call. A step ends when the optimizer has stepped.

    model: a cell, or a list of cells. optimizer: of mindspore.nn or mindspore.mint.optim, what wraps one as its
    attribute optimizer, or a list, of which the last to step ends the step.
    config_path: a configuration with task monitor; default: the task's defaults.
    rank_id: names the rank where mindspore.communication does not.
    select: the cells that are watched, and their parameters: a predicate of msprobe.select, or its text.
    communication, model_series: for PyTorch, and refused here.
    """
    for name, asked in (("communication", communication), ("model_series", model_series)):
        if asked:
            raise MsprobeError(f"{name} is {asked!r}; it is for PyTorch, leave it out for MindSpore")
    given = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    begin(
        PrecisionDebugger,
        arguments.models(model, nn.Cell, "mindspore.nn.Cell"),
        [unwrapped(each) for each in given],
        config_path=config_path,
        rank_id=arguments.rank_id(rank_id),
        select=select,
    )


__all__ = ["watch"]

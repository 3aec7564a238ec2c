"""MsprobeCallback and MsprobeLogger for Lightning, as ``lightning`` or as ``pytorch_lightning``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from msprobe.pytorch.callbacks._trainer_steps import TrainerSteps

# The two packages have classes of their own; the program's is the one that it has imported.
_NAMES = ("lightning.pytorch", "pytorch_lightning")
_lightning: Any = importlib.import_module(next((name for name in _NAMES if name in sys.modules), _NAMES[0]))
_loggers: Any = importlib.import_module(f"{_lightning.__name__}.loggers.logger")


class MsprobeCallback(_lightning.Callback):
    """``Trainer(callbacks=[MsprobeCallback("config.json")])``: captures or watches each step of the training.

    config_path: without one, and without a debugger that exists, task monitor with its defaults. Steps have the numbers
    of ``trainer.global_step`` as they begin; of several optimizers the last to step ends a step. Validation is not
    captured.
    """

    def __init__(self, config_path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._steps = TrainerSteps(config_path)
        self._step: int | None = None  # that has begun

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps.begin(pl_module, trainer.optimizers, trainer.global_step)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._step is None:
            self._step = trainer.global_step
            self._steps.begins()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step != self._step:  # else it accumulates gradients
            self._step = None
            self._steps.ends()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._steps.end()


class MsprobeLogger(_loggers.Logger):
    """``Trainer(logger=[MsprobeLogger(), ...])``: what modules log becomes series, at Lightning's steps."""

    @property
    def name(self) -> str:
        return "msprobe"

    @property
    def version(self) -> str:
        return ""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        TrainerSteps.log(metrics, step or 0)

    def log_hyperparams(self, params: dict[str, Any] | argparse.Namespace, *args: Any, **kwargs: Any) -> None:
        """They are not kept."""


__all__ = ["MsprobeCallback", "MsprobeLogger"]

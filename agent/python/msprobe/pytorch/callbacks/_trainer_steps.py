"""A trainer's steps as the debugger's: what the callbacks of every trainer share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Number
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.watching import watch


class TrainerSteps:
    """A step of the debugger is what lies between two steps of the optimizer, with all its micro-batches, and has the
    trainer's number, counted from 0.

    With task monitor the model is watched, and the optimizer ends the steps. Every other task captures between begins()
    and ends(). begin() raises MsprobeError where the configuration is wrong; from then on nothing is raised.
    """

    def __init__(self, config_path: str | os.PathLike[str] | None) -> None:
        self._config_path = config_path
        self._model: torch.nn.Module | None = None  # of a task that captures

    def begin(self, model: torch.nn.Module, optimizers: Any, step: int) -> None:
        """Training begins, or goes on, with this step."""
        if PrecisionDebugger._instance is None and self._config_path is not None:
            PrecisionDebugger(self._config_path)
        watches = PrecisionDebugger._instance is None or PrecisionDebugger._the().config.task == "monitor"
        if watches:
            watch(model, optimizers)
        else:
            self._model = model
        PrecisionDebugger.set_init_step(step)

    def begins(self) -> None:
        if self._model is None:
            return
        try:
            PrecisionDebugger.start(self._model)
        except MsprobeError as error:
            log.warning(f"nothing is captured: {error}")
            self._model = None

    def ends(self) -> None:
        if self._model is None:
            return
        PrecisionDebugger.stop()
        PrecisionDebugger.step()

    def end(self) -> None:
        """Training has ended; a step that has begun ends with it."""
        PrecisionDebugger.stop()
        self._model = None

    @staticmethod
    def log(values: Mapping[str, Any], step: int) -> None:
        """What the trainer logs, as far as it is numbers."""
        numbers = {name: value for name, value in values.items() if isinstance(value, (Number, torch.Tensor))}
        if numbers and PrecisionDebugger._instance is not None:
            PrecisionDebugger.log(numbers, max(step, 0))

"""MsprobeCallback for Hugging Face's Trainer, and those of its family (TRL's trainers)."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from msprobe.pytorch.callbacks._trainer_steps import TrainerSteps


class MsprobeCallback(TrainerCallback):
    """``Trainer(..., callbacks=[MsprobeCallback("config.json")])``: captures or watches each step of the training.

    config_path: without one, and without a debugger that exists, task monitor with its defaults. Steps have the number
    of ``state.global_step`` as they begin, so a resumed training goes on with them. What the trainer logs becomes a
    point of the step that has just ended. Evaluation is not captured.
    """

    def __init__(self, config_path: str | os.PathLike[str] | None = None) -> None:
        self._steps = TrainerSteps(config_path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.begin(kwargs["model"], kwargs["optimizer"], state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.ends()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._steps.log(logs or {}, state.global_step - 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.end()


__all__ = ["MsprobeCallback"]

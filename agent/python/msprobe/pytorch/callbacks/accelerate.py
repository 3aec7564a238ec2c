"""MsprobeTracker for accelerate: what a loop gives to ``accelerator.log`` becomes series."""

from __future__ import annotations

from typing import Any

from accelerate.tracking import GeneralTracker

from msprobe.pytorch.callbacks._trainer_steps import TrainerSteps


class MsprobeTracker(GeneralTracker):
    """``Accelerator(log_with=[MsprobeTracker()])``, beside ``msprobe.watch(model, optimizer)`` or a debugger, with what
    ``accelerator.prepare`` has made of the two.
    """

    name = "msprobe"
    requires_logging_directory = False

    @property
    def tracker(self) -> None:
        return None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """They are not kept."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        TrainerSteps.log(values, step or 0)


__all__ = ["MsprobeTracker"]

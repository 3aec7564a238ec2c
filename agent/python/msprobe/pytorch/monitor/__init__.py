"""What mindstudio-probe's users call over the files of TrainerMon."""

from msprobe.pytorch.trainer_mon import TrainerMon

__all__ = ["TrainerMon"]

"""msprobe: captures what a model computes and streams it to msprobe-server. A drop-in for mindstudio-probe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msprobe._built import choose

__version__ = "0.1.0"

choose()

from msprobe._common.errors import MsprobeError  # noqa: E402
from msprobe._common.grad_comparator import GradComparator  # noqa: E402  (built for another Python, it says so first)


def watch(model: Any, optimizer: Any, **options: Any) -> None:
    """Watches a training run of PyTorch by one line: see msprobe.pytorch.watching.watch."""
    if any(kind.__module__.startswith("mindspore.") for kind in type(model).__mro__):
        raise MsprobeError("watch is for PyTorch; a cell of MindSpore is watched by msprobe.mindspore.TrainerMon")
    from msprobe.pytorch.watching import watch as watch_training

    watch_training(model, optimizer, **options)


def log(values: Mapping[str, Any], step: int | None = None) -> None:
    """PrecisionDebugger.log of this process's debugger, whatever its framework: ``msprobe.log({"loss": loss})``."""
    from msprobe._common.debugger import the_debugger

    the_debugger().log(values, step)


__all__ = ["GradComparator", "log", "watch"]

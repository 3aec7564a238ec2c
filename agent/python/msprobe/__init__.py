"""msprobe: captures what a model computes and streams it to msprobe-server. A drop-in for mindstudio-probe."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from msprobe._built import choose

__version__ = "0.1.0"

choose()

from msprobe._common.grad_comparator import GradComparator  # noqa: E402  (built for another Python, it says so first)


def watch(model: Any, optimizer: Any, **options: Any) -> None:
    """Watches a training run by one line: see watch of msprobe.pytorch.watching, or of msprobe.mindspore.watching."""
    first = model[0] if isinstance(model, (list, tuple)) and model else model
    is_cell = any(kind.__module__.startswith("mindspore.") for kind in type(first).__mro__)
    module = importlib.import_module(f"msprobe.{'mindspore' if is_cell else 'pytorch'}.watching")
    module.watch(model, optimizer, **options)


def log(values: Mapping[str, Any], step: int | None = None) -> None:
    """PrecisionDebugger.log of this process's debugger, whatever its framework: ``msprobe.log({"loss": loss})``."""
    from msprobe._common.debugger import the_debugger

    the_debugger().log(values, step)


__all__ = ["GradComparator", "log", "watch"]

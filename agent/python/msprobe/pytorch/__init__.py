"""Capture for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``."""

import torch

from msprobe._check import check_environment

check_environment(torch.__version__)

from msprobe.pytorch._errors import MsprobeError  # noqa: E402  (the check gives the better error)
from msprobe.pytorch._reproducible import random_save, seed_all  # noqa: E402
from msprobe.pytorch.debugger import PrecisionDebugger  # noqa: E402

module_dump = PrecisionDebugger.module_dump
module_dump_end = PrecisionDebugger.module_dump_end

__all__ = ["MsprobeError", "PrecisionDebugger", "module_dump", "module_dump_end", "random_save", "seed_all"]

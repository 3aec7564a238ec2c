"""Capture for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``."""

import torch

from msprobe._check import check_environment

check_environment(torch.__version__)

from msprobe.pytorch.debugger import PrecisionDebugger  # noqa: E402  (the check gives the better error)

__all__ = ["PrecisionDebugger"]

"""Eager beside compiled: PrecisionChecker, as mindstudio-probe has it, and bisect_compile, which finds the kernel."""

from msprobe.pytorch.compile_accuracy_checker._bisecting import CompileFault, bisect_compile
from msprobe.pytorch.compile_accuracy_checker.precision_checker import PrecisionChecker

__all__ = ["CompileFault", "PrecisionChecker", "bisect_compile"]

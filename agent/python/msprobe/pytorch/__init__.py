"""Capture for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``."""

from typing import Any

import torch

from msprobe._check import check_environment

check_environment(torch.__version__)

from msprobe._common.errors import MsprobeError  # noqa: E402  (the check gives the better error)
from msprobe.pytorch._reproducible import random_save, seed_all  # noqa: E402
from msprobe.pytorch._weight_digest import Part  # noqa: E402
from msprobe.pytorch.acl_save import acl_save  # noqa: E402
from msprobe.pytorch.debugger import PrecisionDebugger  # noqa: E402
from msprobe.pytorch.dispatch import PtdbgDispatch  # noqa: E402
from msprobe.pytorch.graph_dumper import AclGraphDumper  # noqa: E402
from msprobe.pytorch.trainer_mon import TrainerMon  # noqa: E402
from msprobe.pytorch.trainer_monitor_v2 import TrainerMonitorV2  # noqa: E402
from msprobe.pytorch.watching import watch  # noqa: E402

module_dump = PrecisionDebugger.module_dump
module_dump_end = PrecisionDebugger.module_dump_end

__all__ = [
    "AclGraphDumper",
    "MsprobeError",
    "Part",
    "PrecisionDebugger",
    "PtdbgDispatch",
    "TrainerMon",
    "TrainerMonitorV2",
    "acl_save",
    "bisect_compile",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "random_save",
    "seed_all",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Comparing is loaded by who compares."""
    import importlib

    if name == "bisect_compile":
        return importlib.import_module("msprobe.pytorch.compile_accuracy_checker").bisect_compile
    if name not in ("compare", "compare_distributed"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("msprobe.pytorch.compare")
    return module if name == "compare" else module.compare_distributed

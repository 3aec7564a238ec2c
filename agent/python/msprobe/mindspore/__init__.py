"""Capture for MindSpore: ``from msprobe.mindspore import PrecisionDebugger``."""

import mindspore

from msprobe.mindspore._check import check_environment

check_environment(mindspore.__version__)

from msprobe._common.errors import MsprobeError  # noqa: E402  (the check gives the better error)
from msprobe.mindspore._reproducible import seed_all  # noqa: E402
from msprobe.mindspore._tensor_files import save, save_grad, step  # noqa: E402
from msprobe.mindspore.common.utils import MsprobeInitStep, MsprobeStep  # noqa: E402
from msprobe.mindspore.debugger import PrecisionDebugger  # noqa: E402
from msprobe.mindspore.trainer_mon import TrainerMon  # noqa: E402
from msprobe.mindspore.trainer_monitor_v2 import TrainerMonitorV2  # noqa: E402

__all__ = [
    "MsprobeError",
    "MsprobeInitStep",
    "MsprobeStep",
    "PrecisionDebugger",
    "TrainerMon",
    "TrainerMonitorV2",
    "save",
    "save_grad",
    "seed_all",
    "step",
]

"""``from msprobe.core.monitor_v2 import TrainerMonitorV2``, as in mindstudio-probe."""

from msprobe._common.trainer_monitor_v2 import TrainerMonitorV2

__all__ = ["TrainerMonitorV2"]

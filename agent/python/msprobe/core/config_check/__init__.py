"""``from msprobe.core.config_check import ConfigChecker``, as in mindstudio-probe."""

from msprobe.core.config_check.config_checker import ConfigChecker

__all__ = ["ConfigChecker"]

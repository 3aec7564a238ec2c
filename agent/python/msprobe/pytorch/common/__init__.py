"""``from msprobe.pytorch.common import seed_all``, as in mindstudio-probe."""

from msprobe.pytorch._reproducible import seed_all

__all__ = ["seed_all"]

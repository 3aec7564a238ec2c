"""Where mindstudio-probe's users import from what is no framework's own: ``from msprobe.core import SingleSave``."""

from msprobe.core.single_save.single_comparator import SingleComparator
from msprobe.core.single_save.single_saver import SingleSave

__all__ = ["SingleComparator", "SingleSave"]

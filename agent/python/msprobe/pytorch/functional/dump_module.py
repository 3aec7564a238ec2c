"""``from msprobe.pytorch.functional.dump_module import module_dump, module_dump_end``, as in mindstudio-probe 1.0."""

from msprobe.pytorch import module_dump, module_dump_end

__all__ = ["module_dump", "module_dump_end"]

"""msprobe: captures what a model computes and streams it to msprobe-server. A drop-in for mindstudio-probe."""

from msprobe._built import choose

__version__ = "0.1.0"

choose()

"""msprobe: captures what a model computes and streams it to msprobe-server. A drop-in for mindstudio-probe."""

__version__ = "0.1.0"

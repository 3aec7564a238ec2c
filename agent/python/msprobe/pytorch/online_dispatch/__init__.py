"""``from msprobe.pytorch.online_dispatch import PtdbgDispatch``, as in mindstudio-probe."""

from msprobe.pytorch.dispatch import PtdbgDispatch

__all__ = ["PtdbgDispatch"]

"""The statistics of one tensor as mindstudio-probe's monitors name them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

NAN = math.nan
_NOTHING = (NAN, NAN, NAN, 0.0, 0)  # of no elements


def named_numbers(ops: Sequence[str], measured: Any, other: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """op -> value. measured: what an extension's measure() gives; None: there are no elements. other: the other ops."""
    known = dict(zip(("min", "max", "mean", "norm", "nans"), _NOTHING if measured is None else measured))
    return {op: known[op] if op in known else other[op]() for op in ops}


def narrowed(value: float) -> float:
    """The nearest float of 32 bits, which is what those monitors write of some numbers."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


__all__ = ["NAN", "named_numbers", "narrowed"]

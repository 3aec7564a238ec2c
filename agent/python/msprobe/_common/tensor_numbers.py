"""The statistics of one tensor as mindstudio-probe's monitors name them, read by the agent's kernel."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

NAN = math.nan


def tensor_numbers(tensor: Any, ops: Sequence[str], eps: float) -> dict[str, Any]:
    """op -> value: floats, ints for nans and for extremes of integers, a list for shape, the dtype for dtype.

    What is no tensor has NaN for each. A tensor of a device is copied to the host, which waits for it.
    """
    from msprobe import _agent

    if not hasattr(tensor, "numel"):
        return dict.fromkeys(ops, NAN)
    host = getattr(tensor, "_local_tensor", tensor).detach()
    if host.device.type != "cpu":
        host = host.cpu()
    is_empty = host.numel() == 0
    measured = None if is_empty else _agent.measure(host)
    # As torch has them for no elements.
    low, high, mean, norm, nans = (NAN, NAN, NAN, 0.0, 0) if measured is None else measured
    lazy: Mapping[str, Callable[[], Any]] = {
        "min": lambda: low,
        "max": lambda: high,
        "mean": lambda: mean,
        "norm": lambda: norm,
        "nans": lambda: nans,
        "zeros": lambda: NAN if is_empty else narrowed(int((host.abs() < eps).sum()) / host.numel()),
        "id": lambda: host.item() if host.dim() == 0 else None,
        "shape": lambda: list(tensor.shape),
        "dtype": lambda: tensor.dtype,
    }
    return {op: lazy[op]() for op in ops}


def narrowed(value: float) -> float:
    """The nearest float of 32 bits, which is what those monitors write of some numbers."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


__all__ = ["NAN", "narrowed", "tensor_numbers"]

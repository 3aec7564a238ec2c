"""The statistics of one tensor as mindstudio-probe's monitors name them, read by the agent's kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe import _agent
from msprobe._common.tensor_numbers import NAN, named_numbers, narrowed


def tensor_numbers(tensor: Any, ops: Sequence[str], eps: float) -> dict[str, Any]:
    """op -> value: floats, ints for nans and for extremes of integers, a list for shape, the dtype for dtype.

    What is no tensor has NaN for each. A tensor of a device is copied to the host, which waits for it.
    """
    if not hasattr(tensor, "numel"):
        return dict.fromkeys(ops, NAN)
    host = getattr(tensor, "_local_tensor", tensor).detach()
    if host.device.type != "cpu":
        host = host.cpu()
    is_empty = host.numel() == 0
    return named_numbers(
        ops,
        None if is_empty else _agent.measure(host),
        {
            "zeros": lambda: NAN if is_empty else narrowed(int((host.abs() < eps).sum()) / host.numel()),
            "id": lambda: host.item() if host.dim() == 0 else None,
            "shape": lambda: list(tensor.shape),
            "dtype": lambda: tensor.dtype,
        },
    )


__all__ = ["tensor_numbers"]

"""Indices that may rightly differ: where elements are equal, any of them is the largest."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from msprobe_client.check.arguments import Arguments

_DIM_AT = {"topk": 2, "sort": 1, "argsort": 1, "argmax": 1, "argmin": 1, "max": 1, "min": 1, "kthvalue": 2, "median": 1}
_WHOLE = frozenset({"argmax", "argmin"})


@dataclass(frozen=True, slots=True)
class Axis:
    """Where the elements lie that an operator's indices point to."""

    flat: bool  # the elements are taken as one row
    dim: int
    size: int


def axis_of(operation: str, arguments: Arguments) -> Axis | None:
    """None: its integers are no such indices."""
    if operation not in _DIM_AT or not arguments.args or not isinstance(arguments.args[0], torch.Tensor):
        return None
    values = arguments.args[0]
    at = _DIM_AT[operation]
    dim = arguments.kwargs.get("dim", arguments.args[at] if len(arguments.args) > at else None)
    if dim is None and operation in _WHOLE:
        return Axis(True, 0, values.numel())
    dim = -1 if dim is None else dim
    return Axis(False, dim, values.shape[dim]) if isinstance(dim, int) and values.dim() > 0 else None


def point_to_equals(operation: str, arguments: Arguments, output: torch.Tensor, golden: torch.Tensor) -> bool:
    """Whether both index elements of the same values."""
    axis = axis_of(operation, arguments)
    if axis is None or output.dtype != torch.int64 or output.shape != golden.shape:
        return False
    values = arguments.args[0].to("cpu")
    values = values.flatten() if axis.flat else values
    first, second = output.to("cpu"), golden.to("cpu")
    if first.dim() < values.dim():
        first, second = first.unsqueeze(axis.dim), second.unsqueeze(axis.dim)
    if not bool(((first >= 0) & (first < axis.size)).all()):
        return False
    return torch.equal(values.gather(axis.dim, first), values.gather(axis.dim, second))

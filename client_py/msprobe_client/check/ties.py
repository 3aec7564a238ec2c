"""Indices that may rightly differ: where elements are equal, any of them is the largest."""

from __future__ import annotations

import torch

from msprobe_client.check.arguments import Arguments

_DIM_AT = {"topk": 2, "sort": 1, "argsort": 1, "argmax": 1, "argmin": 1, "max": 1, "min": 1, "kthvalue": 2, "median": 1}
_WHOLE = frozenset({"argmax", "argmin"})


def point_to_equals(operation: str, arguments: Arguments, output: torch.Tensor, golden: torch.Tensor) -> bool:
    """Whether both index elements of the same values."""
    if operation not in _DIM_AT or output.dtype != torch.int64 or output.shape != golden.shape or not arguments.args:
        return False
    values = arguments.args[0]
    if not isinstance(values, torch.Tensor):
        return False
    values = values.to("cpu")
    at = _DIM_AT[operation]
    dim = arguments.kwargs.get("dim", arguments.args[at] if len(arguments.args) > at else None)
    if dim is None and operation in _WHOLE:
        values, dim = values.flatten(), 0
    dim = -1 if dim is None else dim
    if not isinstance(dim, int) or values.dim() == 0:
        return False
    first, second = output.to("cpu"), golden.to("cpu")
    if first.dim() < values.dim():
        first, second = first.unsqueeze(dim), second.unsqueeze(dim)
    if not bool(((first >= 0) & (first < values.shape[dim])).all()):
        return False
    return torch.equal(values.gather(dim, first), values.gather(dim, second))

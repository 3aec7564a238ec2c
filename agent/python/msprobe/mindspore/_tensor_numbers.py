"""The statistics of one tensor as mindstudio-probe's monitors name them, read by the agent's kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from mindspore import Tensor

from msprobe import _mindspore
from msprobe._common.tensor_numbers import NAN, named_numbers, narrowed


def tensor_numbers(tensor: Any, ops: Sequence[str], eps: float) -> dict[str, Any]:
    """op -> value: floats of 32 bits, a tuple for shape, the dtype for dtype. It waits for the tensor.

    What is no tensor has NaN for each.
    """
    if not isinstance(tensor, Tensor):
        return dict.fromkeys(ops, NAN)
    is_empty = tensor.size == 0
    numbers = named_numbers(
        ops,
        None if is_empty else _mindspore.measure(tensor),
        {
            "zeros": lambda: NAN if is_empty else float((numpy.abs(_host(tensor)) < eps).mean()),
            "id": lambda: _host(tensor).item() if tensor.ndim == 0 else None,
            "shape": lambda: tuple(tensor.shape),
            "dtype": lambda: tensor.dtype,
        },
    )
    return {op: narrowed(value) if isinstance(value, (int, float)) else value for op, value in numbers.items()}


def _host(tensor: Tensor) -> Any:
    """Its numbers in an array of a type that numpy computes with."""
    array = tensor.asnumpy()
    return array if array.dtype.kind in "biufc" else array.astype(numpy.float32)


__all__ = ["tensor_numbers"]

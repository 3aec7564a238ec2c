"""What is different when a call runs the second time, for tensors of MindSpore. The names are those of the CHANGES and
PLACES of PyTorch's, and so are the numbers.

Numbers change in numpy, on the host: no kernel of the device takes part, and a device without one fails nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor

from msprobe._common.free_benchmark.judging import NOISE
from msprobe._common.free_benchmark.stage import Change

_NARROW = ("float16", "bfloat16")
_WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}

Array = Any  # numpy.ndarray; of bfloat16 with MindSpore's own dtype


def dtype_of(tensor: Tensor) -> str:
    """ "float32"."""
    return str(tensor.dtype).lower()


def has_digits(tensor: Tensor) -> bool:
    return dtype_of(tensor) in NOISE or dtype_of(tensor).startswith("complex")


def is_narrow(tensor: Tensor) -> bool:
    return dtype_of(tensor) in _NARROW


def widened(array: Array) -> Array:
    """16 bits in float32."""
    return array.astype(np.float32) if array.dtype.name in _NARROW else array


def _add_noise(array: Array) -> Array:
    noise, wide = NOISE[array.dtype.name], widened(array)
    with np.errstate(all="ignore"):
        return np.where(np.abs(wide) > math.sqrt(noise), wide + wide.dtype.type(noise), wide).astype(array.dtype)


def _bit_noise(array: Array) -> Array:
    """The last bit of each number that is finite and no less than the smallest normal one."""
    wide, words = widened(array), array.view(_WORDS[array.itemsize])
    tiny = np.finfo(np.float32 if array.dtype.name == "bfloat16" else array.dtype).tiny
    normal = (np.abs(wide) >= tiny) & np.isfinite(wide)
    return np.where(normal, words ^ words.dtype.type(1), words).view(array.dtype)


def _change_value(array: Array) -> Array:
    """The first and the last element swapped."""
    flat = array.reshape(-1).copy()
    flat[[0, -1]] = flat[[-1, 0]]
    return flat.reshape(array.shape)


# Each takes an array of a dtype of NOISE that is contiguous and not empty, and gives another of its shape and dtype.
CHANGES: dict[str, Callable[[Array], Array]] = {
    "add_noise": _add_noise,
    "bit_noise": _bit_noise,
    "change_value": _change_value,
}


def _with(tensor: Tensor, change: Callable[[Array], Array]) -> Tensor:
    """On memory of its own, which no gradient reaches. A parameter stays one: some operators take nothing else."""
    made = Tensor(np.ascontiguousarray(change(np.array(tensor.asnumpy(), order="C"))).reshape(tensor.shape))
    if not isinstance(tensor, Parameter):
        return made
    return Parameter(made, name=tensor.name, requires_grad=False)


def copied(tensor: Tensor) -> Tensor:
    return _with(tensor, lambda array: array)


def _improved(tensor: Tensor) -> Tensor:
    return _with(tensor, widened)


PLACES: dict[str, Change] = {"no_change": copied, "improve_precision": _improved}


def one_by_one(mode: str, tensors: Iterable[Any]) -> list[Change]:
    """For each tensor that can be changed, what changes it by CHANGES[mode] and copies the others."""
    return [
        _changing(each, CHANGES[mode])
        for each in tensors
        if each is not None and dtype_of(each) in NOISE and math.prod(each.shape) > 0
    ]


def _changing(chosen: Tensor, change: Callable[[Array], Array]) -> Change:
    return lambda tensor: _with(tensor, change) if tensor is chosen else copied(tensor)


def rounded(tensor: Tensor, like: Tensor) -> Tensor:
    """The same numbers in the dtype of another."""
    with np.errstate(over="ignore"):
        return Tensor(tensor.asnumpy().astype(like.asnumpy().dtype))


__all__ = ["CHANGES", "PLACES", "copied", "dtype_of", "has_digits", "is_narrow", "one_by_one", "rounded", "widened"]

"""Digests of weights by place, on the device that holds them: the function of agent/core/weight_digest.h.

On the CPU by its kernel, elsewhere by operators that every device has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe import _agent

# A digest has at most so many blocks of rows.
BLOCKS = 64
# Words that are looked at together; on a device that takes a temporary tensor of eight times the bytes.
_WORDS = 1 << 22
_WORD = 4  # bytes; a larger element is several words


@dataclass(frozen=True, eq=False)
class Part:
    """A box of a tensor that several ranks hold: `tensor` begins at `offset` of a whole of `shape`."""

    tensor: torch.Tensor
    shape: Sequence[int]
    offset: Sequence[int]


def why_unreadable(tensor: torch.Tensor) -> str:
    """Empty: it can be digested."""
    if tensor.layout != torch.strided:
        return f"its layout is {tensor.layout}"
    if tensor.is_meta:
        return "it is on the device meta"
    if tensor.is_quantized:
        return f"its dtype is {tensor.dtype}"
    return ""


def block_digests(part: Part, *, by_operators: bool = False) -> torch.Tensor:
    """int64, one for each block of the whole tensor; of blocks that the part has nothing of 0. On the tensor's device.

    Nothing waits for the device. Digests of parts that make up the whole add up to those of the whole.
    by_operators: on the CPU, too.
    """
    with torch.no_grad():
        return _digest(part, by_operators)


def _digest(part: Part, by_operators: bool) -> torch.Tensor:
    tensor = part.tensor.detach().resolve_conj().resolve_neg()
    shape, offset = [int(size) for size in part.shape], [int(begin) for begin in part.offset]
    if len(shape) < 2:  # of a vector each element is a row
        tensor, shape, offset = tensor.reshape(-1, 1), [*(shape or [1]), 1], [*(offset or [0]), 0]
    words = max(tensor.element_size() // _WORD, 1)
    device = tensor.device
    block_rows = rows_of_block(math.prod(shape[:-1]))
    digests = torch.zeros(block_count(math.prod(shape[:-1])), dtype=torch.int64, device=device)
    if tensor.numel() == 0:
        return digests
    columns = torch.arange(tensor.shape[-1] * words, dtype=torch.int64, device=device) + offset[-1] * words
    column_factors = _factor(columns * 2 + 1)
    sum_rows = _agent.sum_rows if device.type == "cpu" and not by_operators else _sum_rows
    step = max(_WORDS // columns.numel(), 1)
    flat = tensor.reshape(-1, tensor.shape[-1])
    kind = {1: torch.int8, 2: torch.int16}.get(tensor.element_size(), torch.int32)
    for begin in range(0, flat.shape[0], step):
        chunk = flat[begin : begin + step].contiguous().view(kind)
        rows = _rows(begin, begin + chunk.shape[0], tensor.shape[:-1], shape[:-1], offset[:-1], device)
        sums = sum_rows(chunk, column_factors)
        sums *= _factor(rows * 2)
        digests.index_add_(0, rows // block_rows, sums)
    return digests


def _sum_rows(words: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    products = words * factors
    return products.sum(1) if products.shape[1] > 1 else products.reshape(-1)


def rows_of_block(rows: int) -> int:
    return max(-(-rows // BLOCKS), 1)


def block_count(rows: int) -> int:
    return -(-rows // rows_of_block(rows)) if rows else 0


def _rows(begin: int, end: int, local: Any, whole: list[int], offset: list[int], device: Any) -> torch.Tensor:
    """Numbers in the whole tensor of the rows [begin, end) of the part."""
    rest = torch.arange(begin, end, dtype=torch.int64, device=device)
    if list(local[1:]) == whole[1:]:  # whole rows of the first dimension lie together
        return rest + offset[0] * math.prod(whole[1:])
    rows = torch.zeros_like(rest)
    stride = 1
    for size, full, first in zip(reversed(local), reversed(whole), reversed(offset)):
        rows += (rest % size + first) * stride
        rest = rest // size
        stride *= full
    return rows


def _factor(place: torch.Tensor) -> torch.Tensor:
    """SplitMix64 of a place, made odd."""
    bits = (place + 1) * _signed(0x9E3779B97F4A7C15)
    bits = (bits ^ _shifted(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ _shifted(bits, 27)) * _signed(0x94D049BB133111EB)
    return (bits ^ _shifted(bits, 31)) | 1


def _shifted(bits: torch.Tensor, by: int) -> torch.Tensor:
    """To the right, zeros coming in."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


__all__ = ["BLOCKS", "Part", "block_count", "block_digests", "rows_of_block", "why_unreadable"]

"""What is different when a call runs the second time. A mode that changes inputs is a line of CHANGES, one that takes
them to another place or dtype a line of PLACES.

Names and sizes are those of mindstudio-probe's free_benchmark; `msprobe-client sensitivity` has the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch

from msprobe._common.free_benchmark import judging

NOISE: dict[torch.dtype, float] = {getattr(torch, name): noise for name, noise in judging.NOISE.items()}
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_NARROW = (torch.float16, torch.bfloat16)


def _add_noise(tensor: torch.Tensor) -> torch.Tensor:
    noise = NOISE[tensor.dtype]
    return torch.where(tensor.abs() > math.sqrt(noise), tensor + noise, tensor)


def _bit_noise(tensor: torch.Tensor) -> torch.Tensor:
    """The last bit of each number that is finite and no less than the smallest normal one."""
    normal = (tensor.abs() >= torch.finfo(tensor.dtype).tiny) & tensor.isfinite()
    flipped = (tensor.contiguous().view(_WORDS[tensor.element_size()]) ^ 1).view(tensor.dtype)
    return torch.where(normal, flipped, tensor)


def _change_value(tensor: torch.Tensor) -> torch.Tensor:
    """The first and the last element swapped."""
    changed = tensor.clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    flat[0], flat[-1] = flat[-1].clone(), flat[0].clone()
    return changed


Change: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

# Each takes a tensor of a dtype of NOISE that is not empty, and gives another of its shape and dtype.
CHANGES: dict[str, Change] = {
    "add_noise": _add_noise,
    "bit_noise": _bit_noise,
    "change_value": _change_value,
}


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same on memory of its own, with the same strides where it can be, as kernels are chosen by them."""
    source = tensor.detach()
    if source.layout != torch.strided or source.is_contiguous():
        return source.clone()
    try:
        once = source[tuple(slice(None) if stride else slice(0, 1) for stride in source.stride())]
        apart = torch.empty_strided(once.shape, once.stride(), dtype=source.dtype, device=source.device)
        return apart.copy_(once).expand(source.shape)
    except RuntimeError:  # its elements overlap in another way
        return source.clone()


def _improved(tensor: torch.Tensor) -> torch.Tensor:
    """16 bits in float32."""
    return tensor.detach().to(torch.float32) if tensor.dtype in _NARROW else copied(tensor)


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, 16 bits in float32."""
    return tensor.detach().to("cpu", torch.float32 if tensor.dtype in _NARROW else tensor.dtype, copy=True)


# Each gives memory of its own.
PLACES: dict[str, Change] = {
    "no_change": copied,
    "improve_precision": _improved,
    "to_cpu": on_cpu,
}


def one_by_one(mode: str, tensors: Iterable[torch.Tensor | None]) -> list[Change]:
    """For each tensor that can be changed, what changes it by CHANGES[mode] and copies the others."""
    return [
        _changing(each, CHANGES[mode])
        for each in tensors
        if each is not None and each.dtype in NOISE and each.numel() > 0 and each.layout == torch.strided
    ]


def _changing(chosen: torch.Tensor, change: Change) -> Change:
    return lambda tensor: change(copied(tensor)) if tensor is chosen else copied(tensor)


def is_narrow(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _NARROW

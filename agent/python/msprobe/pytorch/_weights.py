"""PrecisionDebugger.weights: what a model's tensors are now, as digests by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe.pytorch._weight_digest import Part, block_digests, why_unreadable

# Before the tensor's name, in the name of its record.
WEIGHTS = "weights."


def tensors_of(weights: Any) -> list[tuple[str, Part]]:
    """Of a module its parameters and what else its checkpoint holds; of a mapping what it says. MsprobeError."""
    if isinstance(weights, torch.nn.Module):
        found = list(_of_module(weights))
    elif isinstance(weights, Mapping):
        found = [(name, _part(name, each)) for name, each in weights.items()]
    else:
        raise MsprobeError(
            f"weights: they are a {type(weights).__name__}; they should be a torch.nn.Module, or a mapping of names to "
            "tensors or Parts"
        )
    readable = []
    for name, part in found:
        why = why_unreadable(part.tensor)
        if why:
            log.warning(f"weights: {name!r} is left out: {why}")
        else:
            readable.append((name, part))
    return readable


def digests_of(named: list[tuple[str, Part]], cast: torch.dtype | None) -> list[dict[str, Any]]:
    """What is recorded of each. Waits once for each device, whatever the number of tensors."""
    known: dict[tuple[Any, ...], tuple[torch.Tensor, ...]] = {}  # tied tensors are looked at once
    found = []
    for _, part in named:
        key = _identity(part)
        if key not in known:
            known[key] = _digests(part, cast)
        found.append(known[key])
    on_host = _to_host([each for digests in found for each in digests])
    return [
        {
            "dtype": str(part.tensor.dtype),
            "shape": [int(size) for size in part.shape],
            "offset": [int(begin) for begin in part.offset],
            "size": list(part.tensor.shape),
            "blocks": on_host[id(digests[0])],
            "cast": {str(cast): on_host[id(digests[1])]} if len(digests) > 1 else {},
        }
        for (_, part), digests in zip(named, found)
    ]


def checked_cast(cast: Any) -> torch.dtype | None:
    if cast is None or (isinstance(cast, torch.dtype) and cast.is_floating_point):
        return cast
    raise MsprobeError(f"weights: cast is {cast!r}; it should be a floating dtype of torch, or None")


def _of_module(root: torch.nn.Module) -> Iterator[tuple[str, Part]]:
    """Names as in its state_dict, which is not asked: that of a sharded model gathers it."""
    for path, module in root.named_modules(remove_duplicate=False):
        held = {**module._parameters, **module._buffers}
        for name, value in held.items():
            if value is not None and name not in module._non_persistent_buffers_set:
                full = f"{path}.{name}" if path else name
                yield full, _part(full, value)


def _part(name: Any, value: Any) -> Part:
    if not isinstance(name, str) or not name:
        raise MsprobeError(f"weights: {name!r} is no name; it should be a string that is not empty")
    if isinstance(value, Part):
        return _checked(name, value)
    if not isinstance(value, torch.Tensor):
        raise MsprobeError(f"weights: {name!r} is a {type(value).__name__}; it should be a tensor or a Part")
    local = getattr(value, "_local_tensor", None)
    if local is None:
        return Part(value, tuple(value.shape), (0,) * value.dim())
    tensor: Any = value
    if any(placement.is_partial() for placement in tensor.placements):
        raise MsprobeError(f"weights: {name!r} is a DTensor of partial sums; it should be sharded or replicated")
    return Part(local, tuple(tensor.shape), _offset_of(tensor) if local.numel() else (0,) * tensor.dim())


def _offset_of(tensor: Any) -> tuple[int, ...]:
    """Where this rank's part of a DTensor begins."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(offset)


def _checked(name: str, part: Part) -> Part:
    sizes = tuple(part.tensor.shape)
    inside = len(sizes) == len(part.shape) == len(part.offset) and all(
        begin >= 0 and begin + size <= full for size, full, begin in zip(sizes, part.shape, part.offset)
    )
    if not inside:
        raise MsprobeError(
            f"weights: the Part {name!r} has sizes {list(sizes)} at offset {list(part.offset)}; that should lie within "
            f"shape {list(part.shape)}"
        )
    return part


def _digests(part: Part, cast: torch.dtype | None) -> tuple[torch.Tensor, ...]:
    digests = (block_digests(part),)
    if cast is None or not part.tensor.is_floating_point() or part.tensor.dtype == cast:
        return digests
    with torch.no_grad():
        return (*digests, block_digests(Part(part.tensor.detach().to(cast), part.shape, part.offset)))


def _identity(part: Part) -> tuple[Any, ...]:
    tensor = part.tensor
    place = tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()
    return (*place, tuple(part.shape), tuple(part.offset)) if tensor.numel() else (id(tensor),)


def _to_host(digests: list[torch.Tensor]) -> dict[int, list[int]]:
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for each in {id(each): each for each in digests}.values():
        by_device.setdefault(each.device, []).append(each)
    found: dict[int, list[int]] = {}
    for group in by_device.values():
        values = torch.cat(group).tolist()
        at = 0
        for each in group:
            found[id(each)] = values[at : at + each.numel()]
            at += each.numel()
    return found


__all__ = ["WEIGHTS", "Part", "checked_cast", "digests_of", "tensors_of"]

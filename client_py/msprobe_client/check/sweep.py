"""Other arguments of the same call: layouts, special values and sizes that the run did not have."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from msprobe_client.check.arguments import Arguments


def variants(arguments: Arguments) -> Iterator[tuple[str, Arguments]]:
    """Each with its name, the recorded arguments first."""
    yield "", arguments
    tensors = [tensor for _, tensor in arguments.tensors]
    if any(tensor.dim() > 1 for tensor in tensors):
        yield "strided", arguments.mapped(_strided)
    if any(tensor.dtype.is_floating_point for tensor in tensors):
        yield "special values", arguments.mapped(_special_values)
        yield "large values", arguments.mapped(lambda tensor: _scaled(tensor, 2.0**6))
        yield "small values", arguments.mapped(lambda tensor: _scaled(tensor, 2.0**-20))
    first = {tensor.shape[0] for tensor in tensors if tensor.dim() > 0}
    if len(first) == 1 and all(tensor.dim() > 0 for tensor in tensors) and first != {0}:
        yield "no rows", arguments.mapped(lambda tensor: tensor[:0])
        yield "one row", arguments.mapped(lambda tensor: tensor[:1].clone())
        yield "257 rows", arguments.mapped(lambda tensor: _rows(tensor, 257))


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, the first dimension the fastest in memory."""
    if tensor.dim() < 2:
        return tensor
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _special_values(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.dtype.is_floating_point or tensor.numel() < 2 or tensor.element_size() < 2:
        return tensor
    info = torch.finfo(tensor.dtype)
    values = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), info.tiny, info.tiny / 4, 1.0]
    large = info.max**0.25  # its square and that of a sum are finite
    values += [large, -large]
    changed = tensor.clone().flatten()
    count = min(len(values), changed.numel() // 2)
    changed[:count] = torch.tensor(values[:count], dtype=torch.float64).to(tensor.dtype)
    return changed.reshape(tensor.shape)


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    return tensor * factor if tensor.dtype.is_floating_point and tensor.element_size() > 1 else tensor


def _rows(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return tensor[torch.arange(count) % tensor.shape[0]]

"""The ways to perturb a call. One that changes inputs is a line of CHANGES; one that runs a call otherwise is a line of
REPETITIONS. The names, and the sizes of add_noise, are those of mindstudio-probe's free_benchmark.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from msprobe_client.check.arguments import Arguments
from msprobe_client.check.replay import wide
from msprobe_client.sensitivity.rows import RELATIVE_NOISE

_NOISE = {torch.bfloat16: 1e-4, torch.float16: 1e-6, torch.float32: 1e-8, torch.float64: 1e-16}
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# What rounds to float64 must not show: the change that makes a difference quotient most exact is about sqrt(eps).
_LEAST_STEP = 2.0**-26
_MOST_STEP = 2.0**-7  # still small, of dtypes of 8 bits


def has_digits(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def step_of(dtypes: Iterable[torch.dtype]) -> float:
    """The relative change that each element gets: the coarsest epsilon, within bounds."""
    return min(max(coarsest(dtypes), _LEAST_STEP), _MOST_STEP)


def coarsest(dtypes: Iterable[torch.dtype]) -> float:
    """The largest epsilon. dtypes: has_digits, at least one."""
    return max(torch.finfo(dtype).eps for dtype in dtypes)


# Of a tensor in its own dtype: the tensor in float64, or complex128, changed. step: step_of the call's inputs.
Change: TypeAlias = Callable[[torch.Tensor, float, torch.Generator], torch.Tensor]


def _relative_noise(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    """Each element by a factor 1 + step * z, z drawn from a normal distribution. Zeros stay, as dtypes round them."""
    exact: torch.Tensor = wide(tensor)

    def draw(part: torch.Tensor) -> torch.Tensor:
        return part * (1 + step * torch.randn(part.shape, generator=generator, dtype=torch.float64))

    return torch.complex(draw(exact.real), draw(exact.imag)) if exact.is_complex() else draw(exact)


def _add_noise(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    exact: torch.Tensor = wide(tensor)
    noise = _NOISE.get(tensor.dtype, 1e-8)
    return torch.where(exact.abs() > math.sqrt(noise), exact + noise, exact)


def _bit_noise(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    """The last bit of each number that is finite and no less than the smallest normal one."""
    host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if host.is_complex():
        return torch.view_as_complex(_bit_noise(torch.view_as_real(host), step, generator))
    normal = (wide(host).abs() >= torch.finfo(host.dtype).tiny) & wide(host).isfinite()
    flipped = (host.view(_BITS[host.element_size()]) ^ 1).view(host.dtype)
    return torch.where(normal, wide(flipped), wide(host))


def _change_value(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    """The first and the last element swapped."""
    flat: torch.Tensor = wide(tensor).flatten().clone()
    if flat.numel() > 1:
        flat[0], flat[-1] = flat[-1].clone(), flat[0].clone()
    return flat.reshape(tensor.shape)


CHANGES: dict[str, Change] = {
    RELATIVE_NOISE: _relative_noise,
    "add_noise": _add_noise,
    "bit_noise": _bit_noise,
    "change_value": _change_value,
    "exchange_value": _change_value,
}
DRAWN = frozenset({RELATIVE_NOISE})  # these differ from draw to draw


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _improved(tensor: torch.Tensor) -> torch.Tensor:
    """16 and 8 bits in float32, float32 in float64, where the tensor is."""
    if not tensor.dtype.is_floating_point or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.float32 if tensor.element_size() < 4 else torch.float64)


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """16 and 8 bits in float32 on the CPU."""
    narrow = tensor.dtype.is_floating_point and tensor.element_size() < 4
    return tensor.to("cpu", torch.float32 if narrow else tensor.dtype)


# How the call runs a second time, of tensors on the device; its outputs are held against the first time's.
REPETITIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "no_change": _same,
    "improve_precision": _improved,
    "to_cpu": _on_cpu,
}


@dataclass(frozen=True, slots=True)
class Perturbed:
    arguments: Arguments
    grad_outputs: list[torch.Tensor | None] | None
    # The root of the mean square, over all numbers that are finite and not 0, of change over number.
    relative_change: float


def perturbed(
    mode: str,
    arguments: Arguments,
    grad_outputs: Iterable[torch.Tensor | None] | None,
    scalar: Callable[[object], object],
    seed: int,
) -> Perturbed:
    """In float64, every floating tensor changed by CHANGES[mode]. scalar: as in Arguments.mapped.

    Tensors of equal content get equal changes: they may be one tensor.
    """
    change = CHANGES[mode]
    step = step_of(tensor.dtype for _, tensor in arguments.tensors if has_digits(tensor.dtype))
    squares, count = 0.0, 0

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal squares, count
        if not has_digits(tensor.dtype):
            return tensor.detach().to("cpu")
        exact: torch.Tensor = wide(tensor)
        own = seed ^ zlib.crc32(exact.contiguous().flatten().view(torch.uint8).numpy().data)
        new = change(tensor, step, torch.Generator().manual_seed(own))
        counts = exact.isfinite() & (exact != 0)
        squares += float(((new - exact)[counts] / exact[counts]).abs().square().sum())
        count += int(counts.sum())
        return new

    made = arguments.mapped(changed, scalar)
    grads = None if grad_outputs is None else [None if each is None else changed(each) for each in grad_outputs]
    return Perturbed(made, grads, math.sqrt(squares / count) if count else 0.0)

"""How far two results of a call are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from msprobe._common.free_benchmark.judging import Distance

_ERRORS = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_PIECE = 1 << 22  # elements that are compared at a time


def distance(first: torch.Tensor, second: torch.Tensor, least: float) -> Distance:
    """Of two floating or complex tensors; the second's dtype is as wide, or wider. least: least_of the second. Waits
    for the device."""
    if first.shape != second.shape:
        return Distance(math.inf)
    scale = _scale(first, second)
    found = [_of_piece(one, other, scale, least) for one, other in _pieces(first, second)]
    if not found:
        return Distance(1.0)
    low, high, flips, nans = torch.stack(found).unbind(1)
    return Distance.between(float(low.amin()), float(high.amax()), bool(flips.any()), bool(nans.any()))


def error_against(result: torch.Tensor, golden: torch.Tensor) -> tuple[float, bool]:
    """The largest error of a result against the CPU's, relative to numbers of 1 and more, and whether it is too far.

    NaN: one of the two is NaN or infinite and the other is something else.
    """
    if result.shape != golden.shape:
        return math.inf, True
    allowed = _ERRORS.get(result.dtype, 2.0**-14)
    result = result.to(golden.device)
    scale = _scale(result, golden)
    worst, total, count = 0.0, 0.0, 0
    for one, other in _pieces(result, golden):
        a, b = one.double() / (scale or 1), other.double() / (scale or 1)
        counts = a.isfinite() & b.isfinite()
        if bool((~counts & (a != b) & ~(a.isnan() & b.isnan())).any()):
            return math.nan, True
        errors = torch.where(counts, (a - b) / b.abs().clamp(min=1), 0.0)
        worst = max(worst, float(errors.abs().amax()))
        total, count = total + float(errors.sum()), count + int(counts.sum())
    return worst, worst > allowed or abs(total) > 1e-4 * count


def _pieces(first: torch.Tensor, second: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both in a dtype that can be divided, on the second's device."""
    wide = torch.promote_types(second.dtype, torch.float32)
    flat = [torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in (first, second)]
    real = wide.to_real() if wide.is_complex else wide
    for one, other in zip(flat[0].reshape(-1).split(_PIECE), flat[1].reshape(-1).split(_PIECE)):
        if one.numel():
            yield one.to(other.device, real), other.to(real)


def _scale(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest finite number of both, or 1 where it is larger."""
    largest = [
        torch.stack([torch.where(each.isfinite(), each.abs(), 0.0).amax() for each in pair]).amax()
        for pair in _pieces(first, second)
    ]
    return min(1.0, float(torch.stack(largest).amax())) if largest else 0.0


def _of_piece(one: torch.Tensor, other: torch.Tensor, scale: float, least: float) -> torch.Tensor:
    """Lowest and highest ratio, whether signs flip, whether only one is NaN, as a tensor of four."""
    a, b = one / (scale or 1), other / (scale or 1)
    nan, same = a.isnan() | b.isnan(), a == b
    ratios = torch.where(same | nan, 1.0, a.abs().clamp(min=least) / b.abs().clamp(min=least))
    low, high = ratios.aminmax()
    flips = (a * b < -(least**2)).any()
    return torch.stack([low, high, flips.to(low.dtype), (a.isnan() != b.isnan()).any().to(low.dtype)])


__all__ = ["distance", "error_against"]

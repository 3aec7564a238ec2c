"""How far two results of a call are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from msprobe._common.free_benchmark.judging import Distance
from msprobe.mindspore.free_benchmark.perturbing import widened

_PIECE = 1 << 22  # elements that are compared at a time


def distance(first: Any, second: Any, least: float) -> Distance:
    """Of two floating or complex arrays; the second's dtype is as wide, or wider. least: least_of the second."""
    if first.shape != second.shape:
        return Distance(math.inf)
    scale = max((min(1.0, _largest(one, other)) for one, other in _pieces(first, second)), default=1.0)
    found = [_of_piece(one, other, scale or 1.0, least) for one, other in _pieces(first, second)]
    if not found:
        return Distance(1.0)
    lows, highs, flips, nans = zip(*found)
    return Distance.between(min(lows), max(highs), any(flips), any(nans))


def _pieces(first: Any, second: Any) -> Iterator[tuple[Any, Any]]:
    """Both as real numbers in the wider dtype."""
    flat = [widened(np.ascontiguousarray(each)).reshape(-1) for each in (first, second)]
    one, other = (each.view(each.real.dtype) if np.iscomplexobj(each) else each for each in flat)
    for start in range(0, one.size, _PIECE):
        yield one[start : start + _PIECE].astype(other.dtype), other[start : start + _PIECE]


def _largest(one: Any, other: Any) -> float:
    return max(float(np.max(np.abs(each), where=np.isfinite(each), initial=0.0)) for each in (one, other))


def _of_piece(one: Any, other: Any, scale: float, least: float) -> tuple[float, float, bool, bool]:
    """Lowest and highest ratio, whether signs flip, whether only one is NaN."""
    with np.errstate(all="ignore"):
        a, b = one / one.dtype.type(scale), other / other.dtype.type(scale)
        nan, same = np.isnan(a) | np.isnan(b), a == b
        ratios = np.where(same | nan, 1.0, np.maximum(np.abs(a), least) / np.maximum(np.abs(b), least))
        flips = a * b < -(least**2)
    return float(ratios.min()), float(ratios.max()), bool(flips.any()), bool((np.isnan(a) != np.isnan(b)).any())


__all__ = ["distance"]

"""Two arrays that SingleSave wrote, element by element: the numbers of a row of SingleComparator's tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# Elements that are looked at together: memory does not grow with the arrays.
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class CompareResult:
    """As mindstudio-probe names them. A relative error is divided by the larger of both sizes. first_mismatch_index: in
    the flattened arrays; None: there is none. Without an element every number is None.
    """

    max_abs_error: float | None
    max_relative_error: float | None
    same_percentage: float | None
    first_mismatch_index: int | None
    percentage_within_thousandth: float | None
    percentage_within_hundredth: float | None


def compare_arrays(array1: Any, array2: Any) -> CompareResult:
    """Of different shapes, what both have in common is compared; of different dimensions, the flattened arrays.

    NaN equals NaN, and an infinity itself; against anything else their errors are NaN or infinite.
    """
    import numpy as np

    if array1.ndim != array2.ndim:
        array1, array2 = array1.reshape(-1), array2.reshape(-1)
    common = tuple(slice(min(sizes)) for sizes in zip(array1.shape, array2.shape, strict=True))
    left, right = array1[common].reshape(-1), array2[common].reshape(-1)
    if left.size == 0:
        return CompareResult(None, None, None, None, None, None)
    tally = _Tally()
    for begin in range(0, left.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        with np.errstate(all="ignore"):
            tally.add(left[part], right[part], begin)
    return tally.result(left.size)


def _distances(left: Any, right: Any) -> tuple[Any, Any, Any]:
    """Where both are the same, |left - right|, and the larger of both sizes."""
    import numpy as np

    if left.dtype.kind in "bui" and right.dtype.kind in "bui":
        absolute = _whole_distances(left, right)
        return absolute == 0, absolute, np.maximum(np.abs(left.astype(np.float64)), np.abs(right.astype(np.float64)))
    left, right = _computable(left), _computable(right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return same, np.abs(left - right), np.maximum(np.abs(left), np.abs(right))


def _whole_distances(left: Any, right: Any) -> Any:
    """|left - right| of integers, rounded once."""
    import numpy as np

    beyond_int64 = any(side.dtype.kind == "u" and side.dtype.itemsize == 8 for side in (left, right))
    whole = [side.astype(np.uint64 if beyond_int64 else np.int64) for side in (left, right)]
    distance = (np.maximum(*whole).view(np.uint64) - np.minimum(*whole).view(np.uint64)).astype(np.float64)
    if beyond_int64:
        negative = (left < 0) | (right < 0)
        distance[negative] = np.abs(left[negative].astype(np.float64) - right[negative].astype(np.float64))
    return distance


def _computable(values: Any) -> Any:
    """In a type in which a difference neither wraps nor loses digits that the values have."""
    import numpy as np

    if values.dtype.kind in "bui":
        return values.astype(np.float64)
    return values.astype(np.float32) if values.dtype.itemsize == 2 else values


class _Tally:
    """What blocks have in sum."""

    def __init__(self) -> None:
        self._absolute = self._relative = 0.0
        self._same = self._thousandth = self._hundredth = 0
        self._first: int | None = None

    def add(self, left: Any, right: Any, begin: int) -> None:
        import numpy as np

        same, absolute, size = _distances(left, right)
        absolute = np.where(same, 0, absolute)
        relative = np.where(same, 0, absolute / size)
        self._absolute = _larger(self._absolute, float(absolute.max()))
        self._relative = _larger(self._relative, float(relative.max()))
        self._same += int(same.sum())
        self._thousandth += int((same | (absolute <= 0.001 * size) & np.isfinite(size)).sum())
        self._hundredth += int((same | (absolute <= 0.01 * size) & np.isfinite(size)).sum())
        if self._first is None and not same.all():
            self._first = begin + int(same.argmin())

    def result(self, elements: int) -> CompareResult:
        def share(count: int) -> float:
            return count / elements * 100

        return CompareResult(
            self._absolute,
            self._relative,
            share(self._same),
            self._first,
            share(self._thousandth),
            share(self._hundredth),
        )


def _larger(one: float, other: float) -> float:
    """NaN, if either is."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)

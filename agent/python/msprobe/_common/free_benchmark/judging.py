"""When two results of a call are too far apart. Sizes are those of mindstudio-probe's free_benchmark.

It knows small numbers from large ones by a fixed size, below which nothing counts. Here that size shrinks with the
tensor: where no number is as large as 1, both results are first divided by the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# By the name of a dtype: what add_noise adds.
NOISE = {"bfloat16": 1e-4, "float16": 1e-6, "float32": 1e-8, "float64": 1e-16}
_LIMITS = {"float16": 1.002, "bfloat16": 1.004}


def limit_of(dtype: str, mode: str) -> float:
    """The ratio that is still right; dtype: of the program's result."""
    return 1.0 if mode == "no_change" else _LIMITS.get(dtype, 1.0002)


def least_of(dtype: str, mode: str, backward: bool) -> float:
    """The size below which numbers count as equal to it, in a tensor with numbers of 1 and more; dtype: of the second
    result."""
    if mode == "no_change":
        return 0.0
    return 1e-3 if backward else math.sqrt(NOISE.get(dtype, NOISE["float32"]))


@dataclass(frozen=True)
class Distance:
    """ratio: the largest of the larger number over the smaller, 1 where both are equal; infinite where one is not
    finite, or the shapes differ; NaN where only one is. flips: a number that counts has the other sign."""

    ratio: float
    flips: bool = False

    @classmethod
    def between(cls, lowest: float, highest: float, flips: bool, nan: bool) -> Distance:
        """Of the lowest and highest of one number over another; nan: one alone is NaN."""
        if nan:
            return cls(math.nan, flips)
        return cls(max(highest, math.inf if lowest == 0 else 1 / lowest), flips)

    def exceeds(self, limit: float) -> bool:
        return self.flips or not self.ratio <= limit

    @property
    def max_rel(self) -> float | str:
        return "symbol_flipping" if self.flips else self.ratio - 1


__all__ = ["NOISE", "Distance", "least_of", "limit_of"]

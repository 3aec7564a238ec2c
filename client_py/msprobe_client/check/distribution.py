"""Random operators: not element by element, but by how their elements are distributed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

# Of a right operator one in a million fails.
SIGMAS = 4.9
KOLMOGOROV = math.sqrt(-0.5 * math.log(1e-6 / 2))


@dataclass(frozen=True, slots=True)
class Agreement:
    rule: str
    measured: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit


def same_distribution(output: torch.Tensor, reference: torch.Tensor) -> Agreement:
    """The two-sample test of Kolmogorov and Smirnov."""
    first = output.detach().to("cpu", torch.float64).flatten().sort().values
    second = reference.detach().to("cpu", torch.float64).flatten().sort().values
    if first.isnan().any() or second.isnan().any():
        return Agreement("distribution", float("nan"), 0.0)
    points = torch.cat((first, second))
    apart = (
        torch.searchsorted(first, points, right=True) / max(len(first), 1)
        - torch.searchsorted(second, points, right=True) / max(len(second), 1)
    ).abs()
    limit = KOLMOGOROV * math.sqrt((len(first) + len(second)) / max(len(first) * len(second), 1))
    return Agreement("distribution", float(apart.max()) if len(points) else 0.0, limit)


def dropped_as_often(output: torch.Tensor, given: torch.Tensor, probability: float) -> Agreement:
    """The share of the elements that were zeroed, among those that were not zero."""
    kept = given.to("cpu") != 0
    count = int(kept.sum())
    if count == 0:
        return Agreement("zeroed_share", 0.0, 0.0)
    zeroed = float((output.detach().to("cpu")[kept] == 0).sum()) / count
    limit = SIGMAS * math.sqrt(probability * (1 - probability) / count)
    return Agreement("zeroed_share", abs(zeroed - probability), limit)

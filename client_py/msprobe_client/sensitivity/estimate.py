"""The two numbers of an output: how much it amplifies a change of the inputs, and how far it is rounded.

Amplification estimates the condition number by a few random perturbations: C. S. Kenney and A. J. Laub, "Small-sample
statistical condition estimates for general matrix functions", SIAM Journal on Scientific Computing 15 (1994). Each
element gets a relative change of its own, as rounding gives it, and the function runs in float64, so that what is seen
is the function and not its rounding. With k draws the mean is wrong by more than a factor g with a probability of about
(2k / (pi * g))^k / k!: for 8 draws and a factor of 10 below one in a million.

A result of dtype epsilon e whose inputs are rounded has a relative error of about amplification * e (N. J. Higham,
"Accuracy and Stability of Numerical Algorithms", section 1.6). It is sensitive where this costs half of its digits:
amplification >= 1 / sqrt(e). The operator's own rounding has the same limit.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import torch

_LEAST_LIMIT = 10.0  # of dtypes of 8 bits: one digit


def limit_of(epsilon: float) -> float:
    """Of amplification, and of rounding in epsilons: half of the digits."""
    return max(_LEAST_LIMIT, 1 / math.sqrt(epsilon))


@dataclass(frozen=True, slots=True)
class Amplification:
    mean: float
    least: float
    most: float
    median: float  # of elements


class Estimate:
    """Of one output, over draws. exact: it in float64, unperturbed. Infinite and NaN elements of it do not count."""

    def __init__(self, exact: torch.Tensor) -> None:
        self._defined = exact.isfinite()
        self._exact = exact[self._defined]
        self._norm = float(torch.linalg.vector_norm(self._exact))
        self._ratios: list[float] = []
        self._squares = torch.zeros(self._exact.shape, dtype=torch.float64)

    @property
    def is_defined(self) -> bool:
        return self._exact.numel() > 0

    def add(self, moved: torch.Tensor, relative_change: float) -> None:
        """moved: the output of the inputs that changed by relative_change, which is not 0."""
        if moved.shape != self._defined.shape:
            self._ratios.append(math.inf)
            self._squares += math.inf
            return
        difference = (moved[self._defined] - self._exact).abs() / relative_change
        difference[~difference.isfinite()] = math.inf  # NaN is a difference
        norm = float(torch.linalg.vector_norm(difference))
        self._ratios.append(_quotient(norm, self._norm))
        self._squares += difference.square()

    def amplification(self) -> Amplification | None:
        """None: nothing to measure."""
        if not self._ratios or not self.is_defined:
            return None
        sizes = self._exact.abs()
        changes = (self._squares / len(self._ratios)).sqrt()
        elements = torch.where(changes == 0, changes, changes / sizes)
        mean = statistics.fmean(self._ratios) if all(map(math.isfinite, self._ratios)) else math.inf
        return Amplification(mean, min(self._ratios), max(self._ratios), float(elements.median()))


def rounding(output: torch.Tensor, right: torch.Tensor) -> float | None:
    """The relative error of `output` in epsilons of its dtype. right: the same in a wider one. Infinite: it is NaN or
    infinite where `right`, rounded to its dtype, is not, or the other way round. None: nothing to measure."""
    if not output.dtype.is_floating_point and not output.dtype.is_complex:
        return None
    if output.shape != right.shape:
        return math.inf
    host = output.detach().cpu()
    own, exact = _real(host), _real(right.detach().cpu())
    rounded = _real(right.detach().cpu().to(host.dtype))
    finite = rounded.isfinite()
    if not bool(((own == rounded) | (own.isnan() & rounded.isnan()) | (finite & own.isfinite())).all()):
        return math.inf
    if not bool(finite.any()):
        return None
    error = own[finite] - exact[finite]
    info = torch.finfo(host.dtype)
    error[error.abs() <= info.tiny * info.eps] = 0.0  # numbers below the normal ones have fewer digits
    norm = float(torch.linalg.vector_norm(exact[finite]))
    return _quotient(float(torch.linalg.vector_norm(error)), norm) / info.eps


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """In float64."""
    return torch.view_as_real(tensor.resolve_conj()).double() if tensor.is_complex() else tensor.double()


def _quotient(change: float, size: float) -> float:
    if change == 0:
        return 0.0
    return change / size if size > 0 and math.isfinite(change) else math.inf

"""When two tensors agree: the tolerances by dtype of msprobe-client compare, in this process."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.testing._comparison import default_tolerances


@dataclass(frozen=True)
class Judge:
    """|found - expected| <= atol + rtol * |expected|, for each element; NaN and infinities at the same places."""

    rtol: float | None = None  # of floating dtypes; None: that of torch.testing.assert_close for the dtype
    atol: float | None = None

    def agree(self, found: torch.Tensor, expected: torch.Tensor) -> bool:
        return self.measured(found, expected)[0] <= 1

    def measured(self, found: torch.Tensor, expected: torch.Tensor) -> tuple[float, float]:
        """The worst difference in times of the tolerance (at most 1: they agree), and the worst one as it is."""
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return math.inf, math.inf
        rtol, atol = default_tolerances(found.dtype, expected.dtype)
        if found.dtype.is_floating_point or found.dtype.is_complex:
            rtol = rtol if self.rtol is None else self.rtol
            atol = atol if self.atol is None else self.atol
        wide = torch.complex128 if found.dtype.is_complex else torch.float64
        a, b = (each.detach().to("cpu").to(wide).reshape(-1) for each in (found, expected))
        same = (a == b) | (a.isnan() & b.isnan())
        a, b = a[~same], b[~same]
        if a.numel() == 0:
            return 0.0, 0.0
        difference = (a - b).abs()
        if not bool(difference.isfinite().all()):
            return math.inf, math.inf
        return float((difference / (atol + rtol * b.abs())).max()), float(difference.max())

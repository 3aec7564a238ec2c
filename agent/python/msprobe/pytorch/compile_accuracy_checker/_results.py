"""What a comparison of eager and compiled gives, by the names that mindstudio-probe has for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

CHECKS = ("fwd_input", "fwd_output", "grad_input", "grad_output", "grad_parameter")


@dataclass
class TensorDiff:
    """One tensor of a compiled module beside the eager one."""

    max_abs: float
    mean_abs: float
    max_rel: float
    allclose: bool  # within the tolerance of the dtype
    shape: tuple[Any, ...]  # of both; (eager's, compiled's) where they differ
    excess: float = 0.0  # the worst error in times of the tolerance
    note: str = ""  # "call 1" of a module that is called again; a keyword's name; what is wrong

    def __str__(self) -> str:
        return (
            f"[{'OK' if self.allclose else '!!'}] max_abs={self.max_abs:.3e}  mean_abs={self.mean_abs:.3e}  "
            f"max_rel={self.max_rel:.3e}  shape={self.shape}"
        )


@dataclass
class ModuleDiff:
    """The tensors of one module. None: there are none of that kind."""

    name: str
    fwd_input: list[TensorDiff] | None = None
    fwd_output: list[TensorDiff] | None = None
    grad_input: list[TensorDiff] | None = None
    grad_output: list[TensorDiff] | None = None
    note: str = ""
    grad_parameter: list[TensorDiff] | None = None

    def add(self, check: str, diff: TensorDiff) -> None:
        setattr(self, check, [*self.of(check), diff])

    def of(self, check: str) -> list[TensorDiff]:
        return getattr(self, check) or []

    @property
    def skipped(self) -> bool:
        return self.note.startswith("SKIP") or self.note == "IGNORED"

    @property
    def passes(self) -> bool:
        return self.skipped or all(diff.allclose for check in CHECKS for diff in self.of(check))


@dataclass
class CompareResult:
    """loss_eager is NaN where only the compiled model ran as a whole (single_pass)."""

    loss_eager: float
    loss_compiled: float
    diffs: list[ModuleDiff] = field(default_factory=list)
    cast_dtype: torch.dtype | None = None
    loss_passes: bool = True  # within the tolerance of the loss's dtype
    runs: dict[str, str] = field(default_factory=dict)  # "eager", "compiled" -> the run in the store
    store: str = ""  # the server's address, or the data directory

    @property
    def loss_diff(self) -> float:
        return math.nan if math.isnan(self.loss_eager) else abs(self.loss_eager - self.loss_compiled)

    @property
    def all_pass(self) -> bool:
        return self.loss_passes and all(diff.passes for diff in self.diffs)

"""What a check found, one row an output or gradient. Frozen; nothing here knows protobuf or torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

# error: the device refused what the reference computes.
Outcome: TypeAlias = Literal["pass", "warning", "fail", "undecided", "error", "skip"]
WRONG: frozenset[Outcome] = frozenset({"fail", "error"})


@dataclass(frozen=True, slots=True)
class CheckRow:
    name: str  # "Functional.gelu.0.forward.output.0"; of a gradient: "Functional.gelu.0.backward.input.0"
    step: int
    rank: str
    operation: str
    verdict: Outcome
    policy: str = ""
    rule: str = ""  # that decided
    measured: float | None = None
    limit: float | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    inputs: str = ""  # "saved"; "drawn": from statistics
    variant: str = ""  # of a sweep
    worst_index: tuple[int, ...] | None = None
    worst_output: float | None = None
    worst_golden: float | None = None
    reason: str = ""  # of a skip or an error
    stack: str = ""  # the line that called
    repeat: str = ""  # a command that runs this call alone
    accuracy: Mapping[str, float] = field(default_factory=dict)
    plain: Mapping[str, float] = field(default_factory=dict)

"""What a check found, one row an output or gradient. Frozen; nothing here knows protobuf or torch."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

# error: the device refused what the reference computes. crashed: it ended every process that tried.
Outcome: TypeAlias = Literal["pass", "warning", "fail", "undecided", "error", "skip", "crashed"]
WRONG: frozenset[Outcome] = frozenset({"fail", "error", "crashed"})
_BY_WEIGHT: tuple[Outcome, ...] = ("crashed", "fail", "error", "warning", "undecided", "pass", "skip")
FLOAT64 = "cpu-fp64"  # the golden value unless a run's


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


def worst(verdicts: Iterable[Outcome]) -> Outcome:
    """The verdict of a call: the gravest of its outputs'; without any it was not checked."""
    found = set(verdicts)
    return next((verdict for verdict in _BY_WEIGHT if verdict in found), "skip")


def rows_of(documents: Iterable[Mapping[str, Any]]) -> list[CheckRow]:
    """From JSON. What is not known here is left out."""
    known = {field.name for field in fields(CheckRow)}
    return [CheckRow(**{key: _value(value) for key, value in row.items() if key in known}) for row in documents]


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def repeating(
    step: int,
    rank: str,
    name: str,
    *,
    shown: str,
    device: str,
    golden: str,
    policy: str,
    seed: int,
    stress: bool,
) -> str:
    """A command that runs one call alone. The rest are fields of checker.Settings."""
    words = ["msprobe-client", "check", shown, "--step", str(step), "--rank", rank, "--name", name]
    words += ["--device", device, "--seed", str(seed)]
    words += ["--golden", golden] * (golden != FLOAT64)
    words += ["--policy", policy] * bool(policy) + ["--stress"] * stress
    return shlex.join(words)

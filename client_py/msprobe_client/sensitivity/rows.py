"""What was found, one row an output or gradient. Frozen; nothing here knows protobuf or torch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

RELATIVE_NOISE = "relative_noise"
# As perturbing.CHANGES and REPETITIONS have them.
MODES = (
    RELATIVE_NOISE,
    "add_noise",
    "bit_noise",
    "change_value",
    "exchange_value",
    "improve_precision",
    "no_change",
    "to_cpu",
)
Finding: TypeAlias = Literal["sensitive", "stable", "error", "skip", "crashed"]
WRONG: frozenset[Finding] = frozenset({"sensitive", "error", "crashed"})
_BY_WEIGHT: tuple[Finding, ...] = ("crashed", "error", "sensitive", "stable", "skip")


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    name: str  # "Torch.log.0.forward.output.0"; of a gradient: "Torch.log.0.backward.input.0"; of a skip: the call
    step: int
    rank: str
    operation: str
    verdict: Finding
    cause: str = ""  # of a verdict "sensitive": "condition", "rounding" or "condition, rounding"
    mode: str = ""
    # Relative change of the output over that of the inputs: mean, least and most of the draws. Infinite: the output
    # became NaN or infinite, or was 0 and changed.
    amplification: float | None = None
    least: float | None = None
    most: float | None = None
    median: float | None = None  # the same of single elements: of the element in the middle
    limit: float | None = None  # of amplification and median
    rounding: float | None = None  # the operator's own relative error, in epsilons of the output's dtype
    rounding_limit: float | None = None
    draws: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    inputs: str = ""  # "saved"; "drawn": from statistics
    module: str = ""  # whose forward or backward made the call, where the capture says so
    reason: str = ""  # of a skip or an error
    stack: str = ""  # the line that called
    repeat: str = ""  # a command that runs this call alone

    @property
    def excess(self) -> float:
        """The larger number in times of its limit."""
        pairs = ((self.amplification, self.limit), (self.median, self.limit), (self.rounding, self.rounding_limit))
        return max((number / limit for number, limit in pairs if number is not None and limit), default=-math.inf)


def worst_first(rows: Iterable[SensitivityRow]) -> list[SensitivityRow]:
    """Crashes and errors, then by excess; else as they came."""
    return sorted(rows, key=lambda row: (min(_BY_WEIGHT.index(row.verdict), 2), -row.excess))


def gravest(findings: Iterable[Finding]) -> Finding:
    """The verdict of a call; without any it was skipped."""
    found = set(findings)
    return next((each for each in _BY_WEIGHT if each in found), "skip")


def rows_of(documents: Iterable[Mapping[str, Any]]) -> list[SensitivityRow]:
    """From JSON. What is not known here is left out."""
    known = {field.name for field in fields(SensitivityRow)}
    return [SensitivityRow(**{key: _value(value) for key, value in row.items() if key in known}) for row in documents]


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def repeating(
    step: int, rank: str, name: str, *, shown: str, device: str, mode: str, draws: int, seed: int, limit: float
) -> str:
    """A command that runs one call alone. The rest are fields of sensing.Settings."""
    words = ["msprobe-client", "sensitivity", shown, "--step", str(step), "--rank", rank, "--name", name]
    words += ["--mode", mode, "--draws", str(draws), "--seed", str(seed), "--device", device]
    words += ["--limit", f"{limit:g}"] * (limit > 0)
    return shlex.join(words)

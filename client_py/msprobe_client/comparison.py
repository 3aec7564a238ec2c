"""Plain values that comparing two runs gives. Frozen; nothing here knows protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msprobe_client.model import Rank

Verdict: TypeAlias = Literal[
    "equal",
    "within",
    "unknown",
    "target only",
    "golden only",
    "differs",
    "non-finite",
    "scalar",
    "shape",
    "dtype",
    "unreadable",
]
Basis: TypeAlias = Literal["", "statistics", "checksum", "content"]
Level: TypeAlias = Literal["module", "layer", "rank", "step", "run"]
# From best to worst, as the wire numbers them.
VERDICTS: tuple[Verdict, ...] = (
    "equal",
    "within",
    "unknown",
    "target only",
    "golden only",
    "differs",
    "non-finite",
    "scalar",
    "shape",
    "dtype",
    "unreadable",
)
BASES: tuple[Basis, ...] = ("", "statistics", "checksum", "content")
LEVELS: tuple[Level, ...] = ("module", "layer", "rank", "step", "run")
HARMLESS = frozenset({"equal", "within", "unknown"})


@dataclass(frozen=True, slots=True)
class ComparedTensor:
    """One tensor, or one argument that is none, with its partner; docs/analysis.md defines every verdict and metric."""

    name: str
    golden_name: str  # empty: the same
    step: int
    rank: Rank
    token: int
    module: str
    verdict: Verdict
    basis: Basis
    target_dtype: str
    golden_dtype: str
    target_shape: str
    golden_shape: str
    excess: float  # how many times the tolerance; infinite where no number says it
    statistic: str  # basis statistics: the one of excess
    target_value: float
    golden_value: float
    metrics: Mapping[str, float | int | None]  # basis content: the fields of ElementMetrics
    message: str
    order: int

    @property
    def is_difference(self) -> bool:
        return self.verdict not in HARMLESS


@dataclass(frozen=True, slots=True)
class RollUp:
    """Rows of a module, a layer, a rank, a step or the whole run, counted by verdict."""

    level: Level
    name: str
    step: int | None
    rank: Rank | None
    rows: int
    verdicts: Mapping[str, int]
    worst_excess: float
    worst: str
    first_difference: str

    @property
    def differences(self) -> int:
        return sum(count for verdict, count in self.verdicts.items() if verdict not in HARMLESS)


@dataclass(frozen=True, slots=True)
class UnpairedStep:
    """A step of a rank that one side lacks."""

    side: Literal["target", "golden"]
    step: int
    rank: Rank


@dataclass(frozen=True, slots=True)
class TableReport:
    """A result table of the established form that was written."""

    path: str
    step: int
    rank: Rank
    rows: int
    warnings: int
    errors: int
    target_only: int

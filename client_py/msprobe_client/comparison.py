"""Plain values, the results of comparing two runs. Frozen; nothing here knows protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from msprobe_client.model import Edge, Number, Rank

# From best to worst.
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
# As the wire numbers them.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
BASES: tuple[Basis, ...] = get_args(Basis)
LEVELS: tuple[Level, ...] = get_args(Level)
HARMLESS = frozenset({"equal", "within", "unknown"})


@dataclass(frozen=True, slots=True)
class Scalar:
    """A non-tensor argument."""

    type: str  # "float", "NoneType", "torch.Size", "slice", "torch.dtype"
    value: bool | int | float | str | None  # other values: as Python prints them

    def __str__(self) -> str:
        if self.type == "NoneType":
            return "None"
        return f"{self.type} {self.value!r}" if self.type == "str" else f"{self.type} {self.value}"


@dataclass(frozen=True, slots=True)
class ComparedTensor:
    """One tensor or non-tensor argument with its partner; docs/analysis.md defines every verdict and metric."""

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
    excess: float  # worst error in times of the tolerance; infinite where no number says it
    statistic: str  # basis statistics: the statistic of excess
    target_value: Number
    golden_value: Number
    metrics: Mapping[str, float | int | None]  # basis content: the fields of ElementMetrics
    message: str
    order: int
    layout: str = ""  # across layouts: how the ranks were joined
    target_scalar: Scalar | None = None  # of a non-tensor argument; target_value and golden_value are 0
    golden_scalar: Scalar | None = None

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

    def __str__(self) -> str:
        return f"only the {self.side} has step {self.step} {self.rank}"


SignVerdict: TypeAlias = Literal["similar", "low", "drop"]
SIGN_VERDICTS: tuple[SignVerdict, ...] = get_args(SignVerdict)


@dataclass(frozen=True, slots=True)
class SignSimilarity:
    """How alike the signs of one gradient are in two runs."""

    step: int
    rank: Rank
    parameter: str  # "summary": all of them, each by its elements
    elements: int
    equal: int  # elements whose signs are equal
    verdict: SignVerdict  # low: at the parameter's first step; drop: since the step before

    @property
    def similarity(self) -> float:
        return self.equal / self.elements if self.elements else 0.0

    def __str__(self) -> str:
        what = {"similar": "are alike", "low": "are too little alike", "drop": "are less alike than the step before"}
        return (
            f"step {self.step} {self.rank}: the signs of {self.parameter} {what[self.verdict]}, "
            f"similarity {self.similarity:.6f}"
        )


@dataclass(frozen=True, slots=True)
class TableReport:
    """A written result table in mindstudio-probe's form."""

    path: str
    step: int
    rank: Rank
    rows: int
    warnings: int
    errors: int
    target_only: int


@dataclass(frozen=True, slots=True)
class TrendReport:
    """A written trend database."""

    path: str
    bytes: int
    steps: int  # of ranks; 0 for files of a training monitor
    warnings: tuple[str, ...]  # what is left out


@dataclass(frozen=True, slots=True)
class DumpReport:
    """A written dump of merged ranks."""

    directories: tuple[str, ...]
    bytes: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplorerReport:
    """Written files of Model Explorer."""

    files: tuple[str, ...]
    bytes: int
    unpaired: tuple[UnpairedStep, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphReport:
    """A written graph database."""

    path: str
    bytes: int
    steps: int
    ranks: int
    unpaired: tuple[UnpairedStep, ...]
    warnings: tuple[str, ...]  # what the graph lacks


Blame: TypeAlias = Literal["", "weight", "input", "argument", "computation", "communication", "missing", "unreadable"]
BLAMES: tuple[Blame, ...] = get_args(Blame)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first operation of a rank that diverged; docs/analysis.md defines every blame."""

    op: str
    golden_op: str  # empty: the same
    module: str
    step: int
    rank: Rank
    token: int
    blame: Blame
    culprit: str  # the blamed tensor
    in_target: bool  # blame missing: the golden side lacks it
    evidence: tuple[ComparedTensor, ...]
    stack: tuple[str, ...]
    collectives_before: int
    first: bool  # the first of all ranks
    edge: Edge | None = None  # of the culprit, if it is an input
    # Operations with an input that differs, each followed to the one that made it; empty: op is the first in order.
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One sentence: what happened."""
        where = f"step {self.step} {self.rank}: {self.op}"
        made = "no recorded operation made it"
        if self.edge is not None and self.edge.tensor:
            made = f"{self.edge.tensor}, which made it, agrees: it was changed in between"
            if self.edge.kind == "sum":
                made = f"{self.edge.tensor} agrees: another of the gradients that were added up does not"
        what = {
            "weight": f"the weight {self.culprit} differs; all before agrees",
            "input": f"the input {self.culprit} differs, and {made}",
            "argument": f"the argument {self.culprit} differs",
            "computation": f"inputs and weights agree, {self.culprit} does not",
            "communication": f"what this rank gave agrees, what came ({self.culprit}) does not",
            "missing": f"only the {'target' if self.in_target else 'golden side'} has this operation",
            "unreadable": f"the content of {self.culprit} cannot be read",
        }
        return f"{where}: {what.get(self.blame, 'differs')}"


ReplicaKind: TypeAlias = Literal["", "parameter", "collective"]
REPLICA_KINDS: tuple[ReplicaKind, ...] = get_args(ReplicaKind)


@dataclass(frozen=True, slots=True)
class ReplicaDifference:
    """A tensor that ranks must have alike, and have not."""

    kind: ReplicaKind  # collective: what an all_reduce, a broadcast or an all_gather gave
    tensor: str
    op: str
    module: str
    step: int
    odd: tuple[Rank, ...]  # where it differs from the others; all of them, where no value has a majority
    others: tuple[Rank, ...]
    stack: tuple[str, ...]

    def __str__(self) -> str:
        """One sentence: what happened."""
        odd, others = (" ".join(map(str, ranks)) for ranks in (self.odd, self.others))
        where = f"step {self.step}: {self.tensor}"
        if not self.others:
            return f"{where} is not the same on {odd}"
        return f"{where} is another on {odd} than on {others}"


Origin: TypeAlias = Literal["", "computation", "weight", "input"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Overflow:
    """An operation in which NaN or infinity began."""

    op: str
    module: str
    step: int
    rank: Rank
    token: int
    origin: Origin
    tensor: str  # name of the row that is not finite
    dtype: str
    shape: str
    nan: bool
    infinity: bool
    stack: tuple[str, ...]
    collectives_before: int
    first: bool  # the first of the whole answer
    entry_json: str = ""  # the operation's value in dump.json, where it was asked for
    modules: tuple[str, ...] = ()  # around the operation, the outermost first; the operation last

    def __str__(self) -> str:
        """One sentence: what happened."""
        value = " and ".join(name for name, there in (("NaN", self.nan), ("infinity", self.infinity)) if there)
        how = {
            "computation": f"{self.tensor} has {value}, and nothing captured that went in has",
            "weight": f"the weight {self.tensor} has {value}",
            "input": f"the input {self.tensor} has {value}, and no recorded operation made it",
        }
        if self.origin == "weight" and ".parameters." not in self.tensor:  # an input that needs a gradient
            how["weight"] = (
                f"{how['input']}: a weight, or what came of a call that is not recorded, a cast, say "
                '("risk_level": "ALL" records those)'
            )
        return f"step {self.step} {self.rank}: {self.op}: {how.get(self.origin, value)}"

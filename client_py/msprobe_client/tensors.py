"""Plain values, the answers about single tensors. Frozen; nothing here knows protobuf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from msprobe_client.model import Number, Rank

# As the wire numbers them, from 1.
Statistic: TypeAlias = Literal[
    "max",
    "min",
    "mean",
    "norm",
    "variance",
    "std",
    "nan",
    "inf",
    "zero",
    "elements",
    "zero_share",
    "rms",
    "abs_max",
    "range",
]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
Comparison: TypeAlias = Literal["<", "<=", "==", "!=", ">=", ">"]
COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)
Predicate: TypeAlias = tuple[Statistic, Comparison, float]


@dataclass(frozen=True, slots=True)
class TrendPoint:
    step: int
    token: int
    value: float | None  # None: the step has no such tensor, or not the statistic
    golden: float | None  # so of the golden side; None, too, where only one side was asked for


@dataclass(frozen=True, slots=True)
class TrendSeries:
    """One statistic of one tensor of one rank over steps and tokens, in their order; or a scalar, without statistic."""

    name: str
    rank: Rank
    statistic: Statistic | None
    dtype: str
    shape: str
    points: tuple[TrendPoint, ...]


@dataclass(frozen=True, slots=True)
class FoundTensor:
    """A tensor that a search found. None: it was not captured."""

    name: str
    op: str
    module: str
    parent: str
    step: int
    rank: Rank
    token: int
    dtype: str
    shape: str
    max: Number | None  # an integer of an integer dtype
    min: Number | None
    mean: float | None
    norm: float | None
    variance: float | None
    nan_count: int | None
    inf_count: int | None
    zero_count: int | None
    checksum: str
    has_content: bool


@dataclass(frozen=True, slots=True)
class Element:
    index: tuple[int, ...]
    value: Number


@dataclass(frozen=True, slots=True)
class TensorPreview:
    """A captured tensor. Statistics are over its finite elements; None: there are none."""

    dtype: str
    shape: tuple[int, ...]
    elements: int
    finite: int
    nan_count: int
    positive_inf_count: int
    negative_inf_count: int
    zero_count: int
    max: Number | None  # an integer of a 64-bit integer dtype, as the values of elements
    min: Number | None
    mean: float | None
    norm: float | None
    std: float | None
    bin_edges: tuple[float, ...]  # one more than bin_counts
    bin_counts: tuple[int, ...]
    largest: tuple[Element, ...]
    smallest: tuple[Element, ...]
    first_non_finite: tuple[Element, ...]

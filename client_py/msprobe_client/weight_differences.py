"""Differences between the weights of running programs, or of one and a checkpoint, as the server answers them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from msprobe_client import decode, model
from msprobe_client.proto import checkpoints_pb2, record_pb2

Kind: TypeAlias = Literal[
    "equal", "cast", "differs", "partial", "stale", "swapped", "shape", "dtype", "missing", "extra"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
AGREEING: frozenset[Kind] = frozenset({"equal", "cast"})


@dataclass(frozen=True, slots=True)
class WeightsPlace:
    """Where weights are: a run, or a checkpoint (path), which only a golden side may be.

    step: default the last one that has weights; of the golden side the target's, if it has it. rank: default all of
    them, and shards are put together.
    """

    run: str = ""
    path: Path | None = None
    step: int | None = None
    rank: model.Rank | None = None

    def message(self) -> checkpoints_pb2.WeightsPlace:
        path = "" if self.path is None else str(self.path.absolute())
        place = checkpoints_pb2.WeightsPlace(run=self.run, path=path)
        if self.step is not None:
            place.step = self.step
        if self.rank is not None:
            place.rank.CopyFrom(decode.rank_message(self.rank))
        return place


@dataclass(frozen=True, slots=True)
class OpenedWeights:
    place: str
    layout: str  # "run", or a checkpoint's
    step: int | None  # of a run
    tensors: int
    ranks: tuple[model.Rank, ...]  # of a run


@dataclass(frozen=True, slots=True)
class Weight:
    """One side of a difference."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    ranks: tuple[model.Rank, ...]  # of a run: those that hold this content, or a shard of it
    digest: str  # 16 hex digits


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """One tensor. docs/checkpoints.md defines the kinds."""

    kind: Kind
    target: Weight | None
    golden: Weight | None
    rows: tuple[tuple[int, int], ...]  # that differ, from and behind the last: partial
    other: str  # swapped and extra: the golden tensor that the target's is equal to
    step: int | None  # stale, and partial where the rows are those of an earlier step
    note: str

    @property
    def name(self) -> str:
        side = self.target or self.golden
        return side.name if side else ""

    def said(self) -> str:
        """What is wrong, in words."""
        found = []
        if self.rows:
            found.append("rows " + ", ".join(f"{begin}-{end - 1}" for begin, end in self.rows))
        if self.step is not None:
            found.append(f"as at step {self.step}")
        if self.other:
            found.append(f"holds {self.other}")
        return "; ".join((*found, self.note) if self.note else found)


def opened(message: checkpoints_pb2.CompareWeightsResponse.Opened) -> OpenedWeights:
    step = message.step if message.HasField("step") else None
    ranks = tuple(map(decode.rank, message.ranks))
    return OpenedWeights(message.place, message.layout, step, message.tensors, ranks)


def difference(message: checkpoints_pb2.WeightDifference) -> WeightDifference:
    return WeightDifference(
        kind=KINDS[message.kind],
        target=_side(message.target) if message.HasField("target") else None,
        golden=_side(message.golden) if message.HasField("golden") else None,
        rows=tuple((each.begin, each.end) for each in message.rows),
        other=message.other,
        step=message.step if message.HasField("step") else None,
        note=message.note,
    )


def _side(message: checkpoints_pb2.WeightDifference.Side) -> Weight:
    return Weight(
        name=message.name,
        dtype=record_pb2.DType.Name(message.dtype).removeprefix("DTYPE_").lower(),
        shape=tuple(message.shape),
        ranks=tuple(map(decode.rank, message.ranks)),
        digest=f"{message.digest:016x}",
    )

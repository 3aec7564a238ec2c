"""Differences between the tensors of two checkpoints, as the server answers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from msprobe_client.proto import checkpoints_pb2, record_pb2

Kind: TypeAlias = Literal["equal", "close", "differs", "nan", "shape", "only-target", "only-golden"]
KINDS: tuple[Kind, ...] = get_args(Kind)
AGREEING: frozenset[Kind] = frozenset({"equal", "close"})


@dataclass(frozen=True, slots=True)
class OpenedCheckpoint:
    path: str
    layout: str  # safetensors, torch, dcp, megatron
    tensors: int


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """One side of a difference."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: int  # parts of files that hold it
    hash: str  # XXH3-64 of the elements, 16 hex digits; "": not read


@dataclass(frozen=True, slots=True)
class CheckpointDifference:
    """One tensor of two checkpoints. The numbers are defined in docs/checkpoints.md."""

    kind: Kind
    target: CheckpointTensor | None
    golden: CheckpointTensor | None
    elements: int
    different: int
    l2: float
    cosine: float
    max_abs: float
    max_rel: float
    rule: str  # of the policy, that decided; "": none was asked
    measured: float
    limit: float
    note: str

    @property
    def name(self) -> str:
        side = self.target or self.golden
        return side.name if side else ""


def opened(message: checkpoints_pb2.DiffCheckpointsResponse.Opened) -> OpenedCheckpoint:
    return OpenedCheckpoint(message.path, message.layout, message.tensors)


def difference(message: checkpoints_pb2.CheckpointDifference) -> CheckpointDifference:
    return CheckpointDifference(
        kind=KINDS[message.kind],
        target=_side(message.target) if message.HasField("target") else None,
        golden=_side(message.golden) if message.HasField("golden") else None,
        elements=message.elements,
        different=message.different,
        l2=message.l2,
        cosine=message.cosine,
        max_abs=message.max_abs,
        max_rel=message.max_rel,
        rule=message.verdict.rule,
        measured=message.verdict.measured,
        limit=message.verdict.limit,
        note=message.note,
    )


def _side(message: checkpoints_pb2.CheckpointDifference.Side) -> CheckpointTensor:
    return CheckpointTensor(
        name=message.name,
        dtype=record_pb2.DType.Name(message.dtype).removeprefix("DTYPE_").lower(),
        shape=tuple(message.shape),
        pieces=message.pieces,
        hash=f"{message.hash:016x}" if message.hash else "",
    )

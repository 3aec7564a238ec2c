"""Checkpoints beside each other, and beside weights of running programs. Client.checkpoints gives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msprobe_client import checkpoint_diff, weight_differences
from msprobe_client.checkpoint_diff import CheckpointDifference, OpenedCheckpoint
from msprobe_client.proto import checkpoints_pb2, checkpoints_pb2_grpc
from msprobe_client.weight_differences import OpenedWeights, WeightDifference, WeightsPlace

if TYPE_CHECKING:
    from msprobe_client.connection import Connection

Progress = Callable[[int, int], None]
Side = TypeVar("Side")
Difference = TypeVar("Difference")


def _nothing(*said: object) -> None:
    del said


class Checkpoints:
    """Calls of msprobe.v1.Checkpoints. Thread safe. Errors are MsprobeError.

    The server reads paths, so it has to be one's own (data_dir). opened: hears what each side is; note: what was left
    out, and why; progress: tensors done, and all.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = checkpoints_pb2_grpc.CheckpointsStub(connection.channel)

    def diff(
        self,
        target: str | os.PathLike[str],
        golden: str | os.PathLike[str],
        *,
        policy: str = "",
        name: str | None = None,
        renames: Iterable[tuple[str, str]] = (),
        optimizer: bool = False,
        opened: Callable[[OpenedCheckpoint], None] = _nothing,
        note: Callable[[str], None] = _nothing,
        progress: Progress = _nothing,
    ) -> Iterator[CheckpointDifference]:
        """How the tensors of two checkpoints differ, in the order of their names: docs/checkpoints.md."""
        request = checkpoints_pb2.DiffCheckpointsRequest(
            target=str(Path(target).absolute()),
            golden=str(Path(golden).absolute()),
            policy=policy,
            optimizer=optimizer,
            renames=_renames(renames),
            name_glob=name or "",
        )
        responses = self._connection.items(lambda: self._stub.DiffCheckpoints(request))
        return _differences(
            responses, checkpoint_diff.opened, checkpoint_diff.difference, opened=opened, note=note, progress=progress
        )

    def weights(
        self,
        target: WeightsPlace,
        golden: WeightsPlace,
        *,
        name: str | None = None,
        renames: Iterable[tuple[str, str]] = (),
        opened: Callable[[OpenedWeights], None] = _nothing,
        note: Callable[[str], None] = _nothing,
        progress: Progress = _nothing,
    ) -> Iterator[WeightDifference]:
        """How recorded weights differ from those of a run or a checkpoint, in the order of their names."""
        request = checkpoints_pb2.CompareWeightsRequest(
            target=target.message(), golden=golden.message(), renames=_renames(renames), name_glob=name or ""
        )
        responses = self._connection.items(lambda: self._stub.CompareWeights(request))
        return _differences(
            responses,
            weight_differences.opened,
            weight_differences.difference,
            opened=opened,
            note=note,
            progress=progress,
        )


def _renames(given: Iterable[tuple[str, str]]) -> list[checkpoints_pb2.DiffCheckpointsRequest.Rename]:
    return [checkpoints_pb2.DiffCheckpointsRequest.Rename(**{"from": a, "to": b}) for a, b in given]


def _differences(
    responses: Iterator[Any],
    side: Callable[[Any], Side],
    difference: Callable[[Any], Difference],
    *,
    opened: Callable[[Side], None],
    note: Callable[[str], None],
    progress: Progress,
) -> Iterator[Difference]:
    for response in responses:
        kind = response.WhichOneof("kind")
        if kind == "progress":
            progress(response.progress.tensors_done, response.progress.tensors_total)
        elif kind == "opened":
            opened(side(response.opened))
        elif kind == "note":
            note(response.note)
        elif kind == "difference":
            yield difference(response.difference)

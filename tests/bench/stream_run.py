"""Runs of many ranks, steps and records, streamed to a server as an agent would, without computing anything."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc
import numpy
import xxhash
from msprobe_client.proto import ingest_pb2, record_pb2

_STREAM = "/msprobe.v1.Ingest/Stream"
_FRAGMENTS_A_BLOCK = 500
_NAMES = 200

# Gives the numbers of one step of one rank: the wanted number of rows of max, min, mean, norm, variance.
Numbers = Callable[[int, int, int], "numpy.typing.NDArray[numpy.float32]"]


@dataclass(frozen=True)
class Plan:
    ranks: int
    steps: int
    records: int  # of each step and rank; three tensors each: two inputs, one output
    numbers: Numbers


def drawn(noise: float = 0.0, wrong: tuple[int, int, int] | None = None) -> Numbers:
    """Random numbers, the same for each rank and step; `noise` is relative; `wrong` (rank, step, tensor) is doubled."""

    def numbers(rank: int, step: int, tensors: int) -> numpy.typing.NDArray[numpy.float32]:
        draw = numpy.random.default_rng((rank, step))
        values = draw.standard_normal((tensors, 5), dtype=numpy.float32)
        if noise:
            values *= 1 + numpy.float32(noise) * draw.standard_normal((tensors, 5), dtype=numpy.float32)
        if wrong is not None and wrong[:2] == (rank, step):
            values[wrong[2]] *= 2
        return values

    return numbers


def stream(address: str, run: str, plan: Plan) -> None:
    """Sends the run, one session a rank; returns when all of it is durable."""
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(
            _STREAM,
            request_serializer=ingest_pb2.AgentMessage.SerializeToString,
            response_deserializer=ingest_pb2.ServerMessage.FromString,
        )
        for rank in range(plan.ranks):
            _Session(run, rank, plan).send(call)


def _structure(name: str, fields: dict[str, int]) -> bytes:
    slot = record_pb2.Node(
        tensor=record_pb2.Node.TensorSlot(type="torch.Tensor", dtype=record_pb2.DTYPE_FLOAT32, device="cpu")
    )
    entries = [
        record_pb2.Node.Entry(key=key, value=record_pb2.Node(list=record_pb2.Node.List(items=[slot] * count)))
        for key, count in fields.items()
    ]
    return record_pb2.Structure(
        name=name, kind=record_pb2.RECORD_API, fields=record_pb2.Node(dict=record_pb2.Node.Dict(entries=entries))
    ).SerializeToString(deterministic=True)


class _Session:
    def __init__(self, run: str, rank: int, plan: Plan) -> None:
        self._plan = plan
        self._rank = rank
        self._session = xxhash.xxh3_128_digest(f"{run}/{rank}".encode())
        self._hello = ingest_pb2.Hello(
            protocol=1,
            session=self._session,
            run=run,
            rank=record_pb2.Rank(kind=record_pb2.Rank.RANK, number=rank),
            settings=ingest_pb2.CaptureSettings(task="statistics", level="L1", framework="pytorch"),
        )
        self._sequence = 0
        names = [f"Torch.operation{i}" for i in range(min(_NAMES, plan.records))]
        self._structures = [(_structure(name, {"input_args": 2}), _structure(name, {"output": 1})) for name in names]

    def send(self, call: Callable[..., Iterator[ingest_pb2.ServerMessage]]) -> None:
        outgoing: queue.Queue[ingest_pb2.AgentMessage | None] = queue.Queue(maxsize=8)
        answers = call(iter(outgoing.get, None))
        outgoing.put(ingest_pb2.AgentMessage(hello=self._hello))
        durable = next(answers).welcome.durable_through
        for batch in self._batches():
            outgoing.put(ingest_pb2.AgentMessage(batch=batch))
        while durable < self._sequence:
            durable = max(durable, next(answers).ack.durable_through)
        outgoing.put(None)
        for _ in answers:
            pass

    def _batches(self) -> Iterator[ingest_pb2.Batch]:
        yield self._batch(definitions=[_definition(each) for pair in self._structures for each in pair])
        end = ingest_pb2.Marker(session_end=ingest_pb2.Marker.SessionEnd(clean=True))
        for step in range(self._plan.steps):
            items = [ingest_pb2.Item(block=block) for block in self._blocks(step)]
            done = ingest_pb2.Marker(step_end=ingest_pb2.Marker.StepEnd(step=step))
            yield self._batch(items=[*items, ingest_pb2.Item(marker=done)])
        yield self._batch(items=[ingest_pb2.Item(marker=end)])

    def _batch(self, **content: object) -> ingest_pb2.Batch:
        self._sequence += 1
        return ingest_pb2.Batch(session=self._session, batch_sequence=self._sequence, **content)

    def _blocks(self, step: int) -> Iterator[record_pb2.Block]:
        values = self._plan.numbers(self._rank, step, 3 * self._plan.records)
        records = _FRAGMENTS_A_BLOCK // 2
        names = len(self._structures)
        ids = [xxhash.xxh3_64_intdigest(each) for pair in self._structures for each in pair]
        for first in range(0, self._plan.records, records):
            calls = range(first, min(first + records, self._plan.records))
            fragments = 2 * len(calls)
            leaves = 3 * len(calls)
            yield record_pb2.Block(
                step=step,
                structures=ids,
                shapes=[record_pb2.Shape(dims=[16, 32])],
                structure=[2 * (each % names) + way for each in calls for way in (0, 1)],
                count=[each // names for each in calls for _ in (0, 1)],
                ordinal_delta=[2 * first + 1] + [1] * (fragments - 1),
                fragment_flags=[record_pb2.FRAGMENT_ENTER, record_pb2.FRAGMENT_EXIT] * len(calls),
                stack=[0] * fragments,
                parent=[0] * fragments,
                shape=[0] * leaves,
                leaf_flags=[record_pb2.LEAF_STATISTICS] * leaves,
                narrow=values[3 * first : 3 * first + leaves].ravel(),
                zero_count=[0] * leaves,
            )


def _definition(structure: bytes) -> record_pb2.Definition:
    return record_pb2.Definition(id=xxhash.xxh3_64_intdigest(structure), structure=structure)

"""Answers about tensors of the fake server's run, from memory."""

from __future__ import annotations

import math
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import grpc

from msprobe_client.proto import analysis_pb2, analysis_pb2_grpc, record_pb2

RANK0 = record_pb2.Rank(kind=record_pb2.Rank.RANK, number=0)
RANK1 = record_pb2.Rank(kind=record_pb2.Rank.RANK, number=1)
LINEAR = "Functional.linear.0.forward"


@cache
def graph_database() -> bytes:
    """Of one rank in two steps, without its nodes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.vis.db"
        with closing(sqlite3.connect(file)) as database:
            database.executescript(
                "CREATE TABLE tb_config (rank_list, step_list); INSERT INTO tb_config VALUES ('[0]', '[3, 4]')"
            )
        return file.read_bytes()


def overflow(step: int) -> analysis_pb2.Overflow:
    return analysis_pb2.Overflow(
        op=LINEAR,
        step=step,
        rank=RANK0,
        origin=analysis_pb2.ORIGIN_COMPUTATION,
        tensor=f"{LINEAR}.output.0",
        dtype="torch.float32",
        shape="[2]",
        nan=True,
    )


class FakeAnalysis(analysis_pb2_grpc.AnalysisServicer):
    """Trend, Find, PreviewTensor and Overflow, for a server with `requests`, `hold` and `cancelled`."""

    requests: list[Any]
    overflow_entry: analysis_pb2.Overflow
    hold: threading.Event
    cancelled: threading.Event

    def Trend(self, request: analysis_pb2.TrendRequest, context: Any) -> Iterator[analysis_pb2.TrendResponse]:
        """Two ranks; of rank1 in two messages, with a NaN, and without the statistic nan of the last step.

        Of "of another task" no statistic was captured.
        """
        self.requests.append(request)
        if request.scope.name_glob == "nothing":
            return
        if request.scope.name_glob == "of another task":
            series = analysis_pb2.TrendSeries(name=LINEAR, rank=RANK0, statistic=request.statistics[0])
            series.MergeFrom(analysis_pb2.TrendSeries(step=[0], token=[0], value=[math.nan], without_value=[0]))
            yield analysis_pb2.TrendResponse(series=series)
            return
        for statistic in request.statistics:
            for rank, parts in ((RANK0, [(0, 1, 2)]), (RANK1, [(0, 1), (2, 3)])):
                for steps in parts:
                    series = analysis_pb2.TrendSeries(
                        name=f"{LINEAR}.output.0",
                        rank=rank,
                        statistic=statistic,
                        step=steps,
                        token=[0] * len(steps),
                        value=[math.nan if (rank.number, step) == (1, 1) else step + 0.5 for step in steps],
                        dtype="torch.float32",
                        shape="[2]",
                    )
                    if (rank.number, statistic, steps[-1]) == (1, analysis_pb2.STATISTIC_NAN, 3):
                        series.value[-1] = math.nan
                        series.without_value.append(len(steps) - 1)
                    if request.HasField("golden"):
                        series.golden.extend(step + 0.25 for step in steps)
                    yield analysis_pb2.TrendResponse(series=series)

    def Find(self, request: analysis_pb2.FindRequest, context: Any) -> Iterator[analysis_pb2.FindResponse]:
        """One tensor of each step asked for (0 and 1 by default); three where all ranks are meant by "many"."""
        self.requests.append(request)
        steps = [item.first for item in request.scope.steps] or [0]
        found = [
            analysis_pb2.FoundTensor(
                name=f"{LINEAR}.output.0",
                op=LINEAR,
                module="model",
                step=step,
                rank=rank,
                dtype="torch.float32",
                shape="[2]",
                max=2.5,
                nan_count=3,
                has_content=True,
            )
            for step in steps
            for rank in ((RANK0, RANK1) if request.scope.name_glob.startswith("many") else (RANK0,))
        ]
        if request.scope.name_glob != "nothing":
            yield analysis_pb2.FindResponse(found=analysis_pb2.FoundTensors(tensors=found))

    def PreviewTensor(self, request: analysis_pb2.PreviewTensorRequest, context: Any) -> analysis_pb2.TensorPreview:
        self.requests.append(request)
        return analysis_pb2.TensorPreview(
            dtype="torch.float32",
            shape=[2, 3],
            elements=6,
            finite=5,
            nan_count=1,
            zero_count=2,
            max=4.0,
            min=-1.0,
            mean=1.0,
            norm=4.5,
            std=1.5,
            bin_edges=[-1.0, 1.5, 4.0],
            bin_counts=[4, 1],
            largest=[analysis_pb2.TensorElement(index=[1, 2], value=4.0)],
            smallest=[analysis_pb2.TensorElement(index=[0, 0], value=-1.0)],
            first_non_finite=[analysis_pb2.TensorElement(index=[0, 1], value=math.nan)],
        )

    def Overflow(self, request: analysis_pb2.OverflowRequest, context: Any) -> Iterator[analysis_pb2.OverflowResponse]:
        """One origin of step 0, and once let go one of step 1; the first again unless the stream follows the run."""
        self.requests.append(request)
        context.add_callback(self.cancelled.set)
        origin = overflow(0)
        if request.with_entries:
            origin.MergeFrom(self.overflow_entry)
        yield analysis_pb2.OverflowResponse(overflow=origin)
        self.hold.wait()
        yield analysis_pb2.OverflowResponse(overflow=overflow(1))
        if not request.follow:
            first = overflow(0)
            first.first = True
            yield analysis_pb2.OverflowResponse(overflow=first)

    def Compare(self, request: analysis_pb2.CompareRequest, context: Any) -> Iterator[analysis_pb2.CompareResponse]:
        """Begins, and then works until it is let go or cancelled."""
        self.requests.append(request)
        context.add_callback(self.cancelled.set)
        row = analysis_pb2.ComparedTensor(name=f"{LINEAR}.output.0", rank=RANK0, verdict=analysis_pb2.VERDICT_DIFFERS)
        yield analysis_pb2.CompareResponse(tensors=analysis_pb2.ComparedTensors(rows=[row]))
        self.hold.wait()
        tally = analysis_pb2.VerdictTally(rows=1, by_verdict=[0, 0, 0, 0, 0, 1])
        run = analysis_pb2.RollUp(level=analysis_pb2.RollUp.RUN, tally=tally)
        yield analysis_pb2.CompareResponse(roll_ups=analysis_pb2.RollUps(roll_ups=[run]))

    def CompareTable(self, request: analysis_pb2.CompareTableRequest, context: Any) -> NoReturn:
        _absent(context)

    def Graph(self, request: analysis_pb2.GraphRequest, context: Any) -> Iterator[analysis_pb2.GraphResponse]:
        self.requests.append(request)
        if request.format == analysis_pb2.GRAPH_FORMAT_MODEL_EXPLORER:
            for name in ("target.json", "../node_data_max.json"):
                yield analysis_pb2.GraphResponse(file=name)
                yield analysis_pb2.GraphResponse(content=b"{")
                yield analysis_pb2.GraphResponse(content=b"}")
            return
        yield analysis_pb2.GraphResponse(warning="stack.json is missing")
        yield analysis_pb2.GraphResponse(progress=analysis_pb2.CompareProgress(steps_done=1, steps_total=1))
        yield analysis_pb2.GraphResponse(content=graph_database()[:7])
        yield analysis_pb2.GraphResponse(content=graph_database()[7:])

    def TrendDatabase(
        self, request: analysis_pb2.TrendDatabaseRequest, context: Any
    ) -> Iterator[analysis_pb2.TrendDatabaseResponse]:
        self.requests.append(request)
        yield analysis_pb2.TrendDatabaseResponse(warning="a step has no calls")
        yield analysis_pb2.TrendDatabaseResponse(progress=analysis_pb2.CompareProgress(steps_done=1, steps_total=1))
        yield analysis_pb2.TrendDatabaseResponse(content=b"SQLite format 3")

    def Measure(self, request_iterator: Any, context: Any) -> NoReturn:
        _absent(context)

    def Judge(self, request: Any, context: Any) -> NoReturn:
        _absent(context)

    def FirstDivergence(self, request: analysis_pb2.FirstDivergenceRequest, context: Any) -> NoReturn:
        _absent(context)

    def Replicas(self, request: analysis_pb2.ReplicasRequest, context: Any) -> NoReturn:
        _absent(context)


def _absent(context: Any) -> NoReturn:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "not in the fake")
    raise AssertionError

"""Query and Control over a real gRPC server, from memory. As a program: msprobe-server's flags, a small run."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import grpc
from fake_analysis import RANK0, RANK1, FakeAnalysis

from msprobe_client.proto import (
    analysis_pb2,
    analysis_pb2_grpc,
    control_pb2,
    control_pb2_grpc,
    environment_pb2,
    environment_pb2_grpc,
    ingest_pb2,
    query_pb2,
    query_pb2_grpc,
    record_pb2,
)


def tensor(**fields: Any) -> record_pb2.Value:
    leaf = record_pb2.TensorLeaf(type="torch.Tensor", dtype="torch.float32", shape=[1, 8], device="cpu")
    for key, value in fields.items():
        if key in ("max", "min"):
            number = getattr(leaf, key)
            kind = "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "real"
            setattr(number, kind, value)
        elif key == "payload":
            leaf.payload.CopyFrom(value)
        elif key == "shape":
            del leaf.shape[:]
            leaf.shape.extend(value)
        else:
            setattr(leaf, key, value)
    return record_pb2.Value(tensor=leaf)


def items(*values: record_pb2.Value) -> record_pb2.Value:
    return record_pb2.Value(list=record_pb2.Value.List(items=values))


def mapping(**values: record_pb2.Value) -> record_pb2.Value:
    entries = [record_pb2.Value.Entry(key=key, value=value) for key, value in values.items()]
    return record_pb2.Value(dict=record_pb2.Value.Dict(entries=entries))


def linear(step: int = 0, rank: record_pb2.Rank = RANK0) -> record_pb2.Record:
    """Functional.linear.0.forward with one NaN among its tensors."""
    nan = float("nan")
    return record_pb2.Record(
        full_name="Functional.linear.0.forward",
        kind=record_pb2.RECORD_API,
        step=step,
        rank=rank,
        ordinal=7,
        flags=record_pb2.FRAGMENT_ENTER | record_pb2.FRAGMENT_EXIT,
        parent="Module.model.Net.forward.0",
        fields=mapping(
            input_args=items(
                tensor(max=0.5, min=-0.5, mean=0.125, norm=2.0, variance=0.25, crc32=0x3DF3C1BA),
                tensor(max=9007199254740993, min=-1, dtype="torch.int64", shape=[]),
                record_pb2.Value(none=True),
            ),
            input_kwargs=mapping(
                mask=tensor(max=True, min=False, dtype="torch.bool"),
                size=record_pb2.Value(json='{"type": "torch.Size", "value": [1, 2]}'),
                p=record_pb2.Value(real=float("inf")),
            ),
            output=items(tensor(max=nan, min=nan, mean=nan, norm=nan, variance=nan, nan_count=3, requires_grad=True)),
        ),
        stack=[record_pb2.Frame(path="/job.py", line=3, function="main", source="model(x)")],
    )


def died(step: int = 0, rank: record_pb2.Rank = RANK0) -> record_pb2.Record:
    """A call that never ended and has no tensor."""
    return record_pb2.Record(
        full_name="Torch.arange.0.forward",
        kind=record_pb2.RECORD_API,
        step=step,
        rank=rank,
        ordinal=8,
        flags=record_pb2.FRAGMENT_ENTER,
        fields=mapping(input_args=items(record_pb2.Value(integer=3))),
    )


class FakeServer(
    FakeAnalysis,
    query_pb2_grpc.QueryServicer,
    control_pb2_grpc.ControlServicer,
    environment_pb2_grpc.EnvironmentsServicer,
):
    """Answers of one run "training" with steps 0 and 1 of rank0 and rank1. Tests change the attributes."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.steps = [
            query_pb2.StepSummary(step=step, rank=rank, state=query_pb2.StepSummary.COMPLETE, records=2, tensors=4)
            for step in (0, 1)
            for rank in (RANK0, RANK1)
        ]
        # path, content, last
        self.export_chunks = [
            (f"step{step}/rank{rank}/{name}", content, True)
            for step in (0, 1)
            for rank in (0, 1)
            for name, content in (("dump.json", b'{"task": "statistics"}'), ("dump_tensor_data/a.pt", b"PK"))
        ]
        self.environments: dict[str, list[environment_pb2.ProcessEnvironment]] = {}  # by run
        self.tensor_chunks = [("t.npy", b"\x93NUM", False), ("", b"PY", True)]
        self.fail: tuple[grpc.StatusCode, str] | None = None
        self.missing: query_pb2.MissingShards | None = None  # goes with every answer
        self.tells_time = False  # ServerInfo has the time of its answer
        self.info = control_pb2.ServerInfo(
            server_id="abc", version="0.1.0", durability=ingest_pb2.DURABILITY_SYNC, storage_format=1
        )
        self.overflow_entry = analysis_pb2.Overflow()  # joins the first origin where entries are asked for
        self.hold = threading.Event()  # once set, streams go on past their first answer
        self.hold.set()
        self.cancelled = threading.Event()
        self.requests: list[Any] = []
        self.imported: dict[str, bytes] = {}
        self.import_run = ""
        self.largest_chunk = 0
        self.sent = 0  # file chunks
        self._server = grpc.server(ThreadPoolExecutor(8))
        query_pb2_grpc.add_QueryServicer_to_server(self, self._server)
        control_pb2_grpc.add_ControlServicer_to_server(self, self._server)
        environment_pb2_grpc.add_EnvironmentsServicer_to_server(self, self._server)
        analysis_pb2_grpc.add_AnalysisServicer_to_server(self, self._server)
        if self._server.add_insecure_port(address) == 0:
            raise OSError(f"cannot listen on {address}")

    def __enter__(self) -> FakeServer:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold.set()
        self._server.stop(None).wait()

    def ReadEnvironment(
        self, request: environment_pb2.ReadEnvironmentRequest, context: Any
    ) -> Iterator[environment_pb2.ProcessEnvironment]:
        self._begin(request, context)
        yield from self.environments[request.run]

    def ListRuns(self, request: query_pb2.ListRunsRequest, context: Any) -> query_pb2.ListRunsResponse:
        self._begin(request, context)
        run = query_pb2.RunSummary(
            owner="token trainers",
            run="training",
            created_unix_us=1_700_000_000_000_000,
            steps=2,
            ranks=[RANK0, RANK1],
            records=8,
            tensors=16,
            nan_tensors=4,
            row_bytes=1000,
            payload_bytes=2048,
        )
        return query_pb2.ListRunsResponse(runs=[run])

    def ListSteps(self, request: query_pb2.ListStepsRequest, context: Any) -> Iterator[query_pb2.StepSummary]:
        self._begin(request, context)
        self._known(request.run, context)
        yield from self.steps

    def ReadRecords(self, request: query_pb2.ReadRecordsRequest, context: Any) -> Iterator[record_pb2.Record]:
        self._begin(request, context)
        self._known(request.run, context)
        context.add_callback(self.cancelled.set)
        for record in (linear(request.step, request.rank), died(request.step, request.rank)):
            if not request.name_glob or fnmatchcase(record.full_name, request.name_glob):
                if not request.with_stack:
                    del record.stack[:]
                yield record
            self.hold.wait()

    def ReadTensor(self, request: query_pb2.ReadTensorRequest, context: Any) -> Iterator[query_pb2.FileChunk]:
        self._begin(request, context)
        yield from self._chunks(self.tensor_chunks, 1)

    def Export(self, request: query_pb2.ExportRequest, context: Any) -> Iterator[query_pb2.FileChunk]:
        self._begin(request, context)
        context.add_callback(self.cancelled.set)
        wanted = [
            chunk
            for chunk in self.export_chunks
            if (not request.steps or any(chunk[0].startswith(f"step{step}/") for step in request.steps))
            and (not request.ranks or any(f"/rank{rank.number}/" in chunk[0] for rank in request.ranks))
        ]
        yield from self._chunks(wanted, len(wanted))

    def Import(self, request_iterator: Iterator[query_pb2.ImportChunk], context: Any) -> query_pb2.ImportResponse:
        path = ""
        for index, chunk in enumerate(request_iterator):
            self._begin(None, context)
            if index == 0:
                self.import_run = chunk.run
            path = chunk.path or path
            self.imported[path] = self.imported.get(path, b"") + chunk.content
            self.largest_chunk = max(self.largest_chunk, len(chunk.content))
        return query_pb2.ImportResponse(steps=1, records=2, payloads=3, warnings=["notes.txt was left out"])

    def DeleteRun(self, request: query_pb2.DeleteRunRequest, context: Any) -> query_pb2.DeleteRunResponse:
        self._begin(request, context)
        self._known(request.run, context)
        return query_pb2.DeleteRunResponse(row_bytes=1000, payload_bytes=2048)

    def GetServerInfo(self, request: control_pb2.GetServerInfoRequest, context: Any) -> control_pb2.ServerInfo:
        self._begin(request, context)
        info = control_pb2.ServerInfo()
        info.CopyFrom(self.info)
        if self.tells_time:
            info.now_unix_us = int(time.time() * 1e6)
        return info

    def Drain(self, request: Any, context: Any) -> NoReturn:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "not in the fake")
        raise AssertionError

    Backup = PinRun = ControlRun = Drain  # tests of these have a real server

    def _begin(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        if self.missing is not None:
            context.set_trailing_metadata((("msprobe-missing-shards-bin", self.missing.SerializeToString()),))
        if self.fail is not None:
            context.abort(*self.fail)

    def _known(self, run: str, context: Any) -> None:
        if run != "training":
            context.abort(grpc.StatusCode.NOT_FOUND, f'there is no run "{run}"; there is: training')

    def _chunks(self, chunks: list[tuple[str, bytes, bool]], total: int) -> Iterator[query_pb2.FileChunk]:
        for path, content, last in chunks:
            yield query_pb2.FileChunk(path=path, content=content, last=last, files_total=total)
            self.sent += 1
            self.hold.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--embedded", action="store_true", required=True)
    parser.add_argument("--idle_exit_seconds", type=int, required=True)
    flags = parser.parse_args()
    if (flags.data_dir / "locked").exists():
        sys.exit(f"{flags.data_dir} is in use by another server")
    (flags.data_dir / "pid").write_text(str(os.getpid()))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with FakeServer(flags.listen):
        while not ended.wait(0.1):  # a signal just before one long wait would wait for its end
            pass
    (flags.data_dir / "drained").touch()


if __name__ == "__main__":
    main()

"""The Python API against a real gRPC server in this process."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import grpc
import pytest
from fake_server import FakeServer

import msprobe_client
from msprobe_client import (
    Client,
    ClientClosed,
    DataError,
    FailedPrecondition,
    InvalidArgument,
    MsprobeError,
    NotFound,
    Rank,
    ServerError,
    ServerUnavailable,
    TensorStats,
)
from msprobe_client.proto import query_pb2


def test_runs_and_steps(server: FakeServer) -> None:
    server.steps[0].gaps.add(step=0, fragments=5, payloads=1, reason=1)
    server.steps[1].state = query_pb2.StepSummary.INCOMPLETE
    with Client(server.address) as client:
        (run,) = client.runs()
        steps = client.steps("training")
    assert (run.run, run.steps, run.ranks) == ("training", 2, (Rank("rank", 0), Rank("rank", 1)))
    assert run.created.timestamp() == 1_700_000_000
    assert [(item.step, str(item.rank), item.state) for item in steps[:2]] == [
        (0, "rank0", "complete"),
        (0, "rank1", "incomplete"),
    ]
    assert (steps[0].gaps[0].reason, steps[0].gaps[0].fragments) == ("dropped", 5)


def test_record_is_decoded_with_its_nesting_and_its_exact_numbers(server: FakeServer) -> None:
    with Client(server.address) as client:
        record, unfinished = client.records("training", step=1, rank="rank1", with_stack=True)
    assert (record.step, record.rank, record.kind, record.direction) == (1, Rank("rank", 1), "api", "forward")
    assert record.complete and not unfinished.complete
    assert (record.parent, unfinished.parent) == ("Module.model.Net.forward.0", None)
    first, integers, none = record.fields["input_args"]
    assert isinstance(first, TensorStats)
    assert (first.max, first.mean, first.checksum, first.shape) == (0.5, 0.125, "3df3c1ba", (1, 8))
    assert (integers.max, integers.mean, integers.shape) == (9007199254740993, None, ())
    assert none is None
    assert record.fields["input_kwargs"]["mask"].max is True
    assert record.fields["input_kwargs"]["size"] == {"type": "torch.Size", "value": [1, 2]}
    assert record.fields["input_kwargs"]["p"] == math.inf
    assert math.isnan(record.fields["output"][0].norm)
    assert record.stack[0].source == "model(x)"


def test_tensors_are_named_as_their_files(server: FakeServer) -> None:
    with Client(server.address) as client:
        (record,) = client.records("training", step=0, rank=0, name="Functional.*")
    assert [name for name, _ in record.tensors()] == [
        "Functional.linear.0.forward.input.0",
        "Functional.linear.0.forward.input.1",
        "Functional.linear.0.forward.kwargs.mask",
        "Functional.linear.0.forward.output.0",
    ]


@pytest.mark.parametrize(
    ("kind", "full_name", "fields", "names"),
    [
        ("module", "Module.x.Linear.forward.0", {"parameters": {"w/1": ...}}, [".parameters.w_1"]),
        ("parameters_grad", "Module.x.Linear.parameters_grad.0", {"weight": [..., ...]}, [".weight", ".weight"]),
        ("debug", "z.0.debug", {"debug": {"b": [...]}}, [".b.0"]),
        ("debug", "y.0.debug", {"debug": ...}, [""]),
        ("api", "Custom.f.3.forward", {"input_kwargs": {"nt": {"a": ...}}}, [".kwargs.nt.a"]),
    ],
)
def test_names_of_every_family(kind: str, full_name: str, fields: dict[str, object], names: list[str]) -> None:
    leaf = TensorStats("torch.Tensor", "torch.float32", (1,), False, "cpu")

    def filled(value: object) -> object:
        if value is ...:
            return leaf
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        assert isinstance(value, list)
        return [filled(item) for item in value]

    record = msprobe_client.Record(
        full_name=full_name,
        step=0,
        rank=Rank("rank", 0),
        token=0,
        ordinal=0,
        kind=kind,  # type: ignore[arg-type]
        direction="forward",
        complete=True,
        raised=False,
        fault=False,
        recompute=False,
        fields={key: filled(value) for key, value in fields.items()},
        parent=None,
    )
    assert [name for name, _ in record.tensors()] == [full_name + name for name in names]


def test_leaving_a_stream_early_cancels_the_call(server: FakeServer) -> None:
    server.hold.clear()
    with Client(server.address) as client:
        records = client.records("training", step=0, rank=0)
        next(iter(records))
        del records
        assert server.cancelled.wait(10)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (grpc.StatusCode.NOT_FOUND, NotFound, "boom"),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument, "refused"),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition, "refused"),
        (grpc.StatusCode.UNIMPLEMENTED, ServerError, "of this version"),
        (grpc.StatusCode.INTERNAL, ServerError, "INTERNAL"),
        (grpc.StatusCode.UNAVAILABLE, ServerUnavailable, "check that it runs"),
    ],
)
def test_each_error_of_the_server_is_one_of_ours_and_names_the_server(
    server: FakeServer, code: grpc.StatusCode, kind: type[MsprobeError], words: str
) -> None:
    server.fail = (code, "boom\nand more")
    with Client(server.address) as client:
        for call in (client.runs, lambda: client.steps("training")):
            with pytest.raises(kind) as caught:
                call()
            assert words in str(caught.value) and server.address in str(caught.value)
            assert "\n" not in str(caught.value)


def test_nobody_listens(tmp_path: Path) -> None:
    with Client(f"unix:{tmp_path}/none") as client, pytest.raises(ServerUnavailable, match="none"):
        client.runs()


@pytest.mark.parametrize("address", ["", "host", "host:0", "host:99999", "unix:", "http://host:1", "unix:" + "x" * 108])
def test_an_address_that_does_not_parse_is_refused_at_construction(address: str) -> None:
    with pytest.raises(InvalidArgument):
        Client(address)


@pytest.mark.parametrize("address", ["host:1", "10.0.0.1:50051", "[::1]:50051", "unix:/run/x", "unix:relative"])
def test_an_address_that_parses(address: str) -> None:
    Client(address).close()


@pytest.mark.parametrize(("text", "rank"), [(0, "rank0"), ("0", "rank0"), ("rank12", "rank12"), ("proc123", "proc123")])
def test_ranks(text: str | int, rank: str) -> None:
    assert str(Rank.parse(text)) == rank


@pytest.mark.parametrize("text", [-1, "rank", "r0", "", "rank-1", "99999999999", "4294967296"])
def test_what_is_not_a_rank(text: str | int) -> None:
    with pytest.raises(InvalidArgument, match="rank0"):
        Rank.parse(text)


def test_export_of_some_steps_and_ranks(server: FakeServer, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Client(server.address) as client:
        report = client.export(
            "training", tmp_path / "out", steps=[1], ranks=["rank0"], progress=lambda *now: seen.append(now)
        )
    assert report.directories == (tmp_path / "out/step1/rank0",)
    assert (report.files, seen) == (2, [(1, 2), (2, 2)])
    files = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert files == ["step1/rank0/dump.json", "step1/rank0/dump_tensor_data/a.pt"]
    assert (tmp_path / "out/step1/rank0/dump_tensor_data/a.pt").read_bytes() == b"PK"


def test_export_passes_its_options_on(server: FakeServer, tmp_path: Path) -> None:
    with Client(server.address) as client:
        client.export("training", tmp_path / "out", extended=True, strict_json=True, tensors=False)
    request = server.requests[-1]
    assert (request.extended, request.strict_json, request.omit_tensors) == (True, True, True)


def test_export_refuses_an_existing_directory_before_asking_for_files(server: FakeServer, tmp_path: Path) -> None:
    existing = tmp_path / "step0" / "rank1"
    existing.mkdir(parents=True)
    (existing / "mine.txt").write_text("precious")
    with Client(server.address) as client:
        with pytest.raises(FailedPrecondition, match=r"step0/rank1.*--force"):
            client.export("training", tmp_path)
        assert not isinstance(server.requests[-1], query_pb2.ExportRequest)
        assert (existing / "mine.txt").exists() and not (tmp_path / "step0" / "rank0").exists()
        client.export("training", tmp_path, force=True)
    assert not (existing / "mine.txt").exists() and (existing / "dump.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "s") == ["step0", "step1"]


@pytest.mark.parametrize(
    "path", ["../evil", "/tmp/evil", "step0/../../evil", "step0//x", "step0/./x", "a\0b", "step0\\rank0\\x", "step0/"]
)
def test_export_refuses_a_path_that_leaves_its_directory(server: FakeServer, tmp_path: Path, path: str) -> None:
    server.export_chunks.append((path, b"x", True))
    with Client(server.address) as client, pytest.raises(DataError, match="path"):
        client.export("training", tmp_path / "out")
    assert not (tmp_path / "evil").exists() and not Path("/tmp/evil").exists()
    assert not [child for child in (tmp_path / "out").iterdir() if child.name.startswith(".")]


@pytest.mark.parametrize(
    "chunks",
    [
        [("step1/rank0/dump.json", b"{", False)],  # ends in the middle of a file
        [("step1/rank0/dump.json", b"{", False), ("step1/rank0/stack.json", b"{}", True)],
        [("", b"lost", True)],
    ],
)
def test_a_broken_export_leaves_whole_directories_only(
    server: FakeServer, tmp_path: Path, chunks: list[tuple[str, bytes, bool]]
) -> None:
    server.export_chunks = [("step0/rank0/dump.json", b"{}", True), *chunks]
    with Client(server.address) as client, pytest.raises(DataError):
        client.export("training", tmp_path / "out")
    left = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert left <= {"step0", "step0/rank0", "step0/rank0/dump.json"}


def test_a_tensor_is_returned_or_written_whole(server: FakeServer, tmp_path: Path) -> None:
    target = tmp_path / "t.npy"
    with Client(server.address) as client:
        assert client.tensor("training", "a.0", step=1, rank="rank0", format="pt") == b"\x93NUMPY"
        assert server.requests[-1].format == query_pb2.ReadTensorRequest.PT
        assert (server.requests[-1].step, server.requests[-1].rank.number) == (1, 0)
        assert client.tensor("training", "a.0", target) == target
        assert server.requests[-1].format == query_pb2.ReadTensorRequest.NPY
        assert not server.requests[-1].HasField("step") and not server.requests[-1].HasField("rank")
        server.tensor_chunks = [("t.npy", b"half", False)]
        with pytest.raises(DataError, match="middle"):
            client.tensor("training", "a.0", target)
        with pytest.raises(InvalidArgument, match=r"\.pt or \.npy"):
            client.tensor("training", "a.0", tmp_path / "t.txt")
    assert target.read_bytes() == b"\x93NUMPY"
    assert {path.name for path in tmp_path.iterdir()} <= {"t.npy", "s"}


def dump(root: Path) -> Path:
    for directory in ("step0/rank0", "step0/rank1", "step10/rank0", "step2/proc7"):
        (root / directory / "dump_tensor_data").mkdir(parents=True)
        (root / directory / "dump.json").write_text("{}")
        (root / directory / "stack.json").write_bytes(b"")
        (root / directory / "dump_tensor_data" / "a.pt").write_bytes(b"x" * 3_000_000)
        (root / directory / "notes.txt").write_text("not ours")
    (root / "step3" / "rank0").mkdir(parents=True)  # no dump in it
    (root / "config.json").write_text("{}")
    return root


def test_import_streams_every_file_of_a_dump(server: FakeServer, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Client(server.address) as client:
        report = client.import_dump(dump(tmp_path / "d"), "new", progress=lambda *now: seen.append(now))
    assert (report.steps, report.warnings) == (1, ("notes.txt was left out",))
    assert server.import_run == "new"
    assert list(server.imported) == [
        f"{directory}/{name}"
        for directory in ("step0/rank0", "step0/rank1", "step2/proc7", "step10/rank0")
        for name in ("dump.json", "stack.json", "dump_tensor_data/a.pt")
    ]
    assert server.imported["step0/rank0/dump_tensor_data/a.pt"] == b"x" * 3_000_000
    assert server.imported["step0/rank0/stack.json"] == b""
    assert server.largest_chunk < 4 << 20
    assert seen[-1] == (4 * 3_000_002, 4 * 3_000_002)


@pytest.mark.parametrize(("part", "first"), [("step2", "step2/proc7"), ("step0/rank1", "step0/rank1")])
def test_import_of_one_step_or_rank(server: FakeServer, tmp_path: Path, part: str, first: str) -> None:
    with Client(server.address) as client:
        client.import_dump(dump(tmp_path / "d") / part, "new")
    assert {path.rsplit("/dump", 1)[0].removesuffix("/stack.json") for path in server.imported} == {first}


def test_import_of_what_is_no_dump(server: FakeServer, tmp_path: Path) -> None:
    with Client(server.address) as client:
        for directory in (tmp_path, tmp_path / "missing"):
            with pytest.raises(InvalidArgument, match=str(directory)):
                client.import_dump(directory, "new")
    assert server.requests == []


def test_import_names_the_file_that_cannot_be_read(server: FakeServer, tmp_path: Path) -> None:
    root = dump(tmp_path / "d")

    def vanish(done: int, total: int) -> None:
        (root / "step10" / "rank0" / "dump_tensor_data" / "a.pt").unlink(missing_ok=True)

    with Client(server.address) as client, pytest.raises(DataError, match=r"step10/rank0.*a\.pt cannot be read"):
        client.import_dump(root, "new", progress=vanish)


def test_import_refused_by_the_server(server: FakeServer, tmp_path: Path) -> None:
    server.fail = (grpc.StatusCode.INVALID_ARGUMENT, "step0/rank0/dump.json: not JSON at 1:2")
    with Client(server.address) as client, pytest.raises(InvalidArgument, match="not JSON at 1:2"):
        client.import_dump(dump(tmp_path / "d"), "new")


def test_delete_and_server_info(server: FakeServer) -> None:
    with Client(server.address) as client:
        assert client.delete("training").payload_bytes == 2048
        with pytest.raises(NotFound, match="training"):
            client.delete("nothing")
        assert (client.server_info().durability, client.server_info().version) == ("sync", "0.1.0")


def test_one_client_serves_several_threads(server: FakeServer) -> None:
    counts: list[int] = []
    with Client(server.address) as client:

        def read() -> None:
            counts.append(sum(1 for _ in client.records("training", step=0, rank=0)))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == [2, 2, 2, 2]


def test_a_closed_client_says_so(server: FakeServer) -> None:
    client = Client(server.address)
    client.close()
    with pytest.raises(ServerUnavailable, match="closed"):
        client.runs()
    with pytest.raises(ServerUnavailable, match="closed"):
        client.steps("training")


def test_a_client_that_is_closed_during_a_call_says_so(server: FakeServer) -> None:
    server.export_chunks = [("step0/rank0/dump.json", b"x" * 1_000_000, False)] * 200
    client = Client(server.address)
    stream = client._connection.items(lambda: client._query.Export(query_pb2.ExportRequest(run="training")))
    next(stream)
    client.close()
    with pytest.raises(ClientClosed, match="make another one"):
        for _ in stream:
            pass


def test_an_address_is_text() -> None:
    with pytest.raises(InvalidArgument, match="server address '5' is not understood"):
        Client(5)  # type: ignore[arg-type]


def test_reading_ahead_is_bounded(server: FakeServer) -> None:
    """A slow reader of a long answer holds a few answers, not all of them."""
    server.export_chunks = [("step0/rank0/dump.json", b"x" * 1_000_000, False)] * 200
    with Client(server.address) as client:
        stream = client._connection.items(lambda: client._query.Export(query_pb2.ExportRequest(run="training")))
        next(stream)
        assert server.sent < 100
        stream.close()  # type: ignore[attr-defined]
        assert server.cancelled.wait(10)
        assert server.sent < 200

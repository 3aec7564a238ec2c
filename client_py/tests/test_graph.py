"""graph, and msprobe graph_visualize: requests, files and messages."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run
from fake_analysis import graph_database
from fake_server import FakeServer
from test_compare import binary, recorded  # noqa: F401

from msprobe_client.analysis_client import ExplorerFiles
from msprobe_client.errors import ServerError
from msprobe_client.proto import analysis_pb2
from msprobe_client.vis_file import other_graphs, vis_file


def test_the_file_is_whole_and_for_its_owner(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    file = tmp_path / "graphs" / "a.vis.db"
    file.parent.mkdir()
    (tmp_path / "graphs" / "a.vis.db-wal").write_bytes(b"of an earlier file")
    result = run_client(
        "graph", "training", "other", "--fuzzy", "--overflow", "--step", "3", "-o", file, "--server", server.address
    )
    assert result.returncode == 0, result.stderr
    assert "stack.json is missing" in result.stderr and str(file) in result.stdout
    assert result.stdout.split()[:6] == ["FILE", "STEPS", "RANKS", "BYTES", str(file), "2"], result.stdout
    assert file.read_bytes() == graph_database() and list(file.parent.iterdir()) == [file]
    assert file.stat().st_mode & 0o022 == 0
    (request,) = server.requests
    assert (request.target.run, request.golden.run, request.overflow) == ("training", "other", True)
    assert request.matching == analysis_pb2.MATCHING_FUZZY and request.scope.steps[0].first == 3


@pytest.mark.parametrize("command", ["graph", "trend-database"])
def test_a_disk_that_takes_a_part_gets_no_file(server: FakeServer, tmp_path: Path, command: str) -> None:
    # The system takes 8 bytes without an error; the next write has one.
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8)); import msprobe_client.__main__"
    out = tmp_path / "out"
    result = subprocess.run(
        [sys.executable, "-B", "-c", limited, command, "training", "-o", out, "--server", server.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3, result.stdout
    assert "cannot be written: File too large" in result.stderr and not out.exists()


def test_one_side_has_no_golden(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    result = run_client("graph", "training", "-o", tmp_path / "out", "--server", server.address)
    assert result.returncode == 0, result.stderr
    (request,) = server.requests
    assert not request.HasField("golden")
    (file,) = (tmp_path / "out").iterdir()
    assert file.name.startswith("build_") and file.name.endswith(".vis.db")


def test_files_of_model_explorer_lie_in_the_directory(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    out = tmp_path / "explorer"
    options = ("--to", "model-explorer", "-o", out, "--server", server.address)
    result = run_client("graph", "training", "other", *options)
    assert result.returncode == 0, result.stderr
    # A server cannot name a file elsewhere.
    assert sorted(path.name for path in out.iterdir()) == ["node_data_max.json", "target.json"]
    assert (out / "target.json").read_text() == "{}"
    (request,) = server.requests
    assert request.format == analysis_pb2.GRAPH_FORMAT_MODEL_EXPLORER and request.golden.run == "other"


@pytest.mark.parametrize(
    ("to", "right"), [("tensorboard", "a directory or NAME.vis.db"), ("model-explorer", "a directory")]
)
def test_a_file_is_no_directory(server: FakeServer, run_client: Run, tmp_path: Path, to: str, right: str) -> None:
    file = tmp_path / "notes"
    file.write_text("mine")
    result = run_client("graph", "training", "--to", to, "-o", file, "--server", server.address)
    assert result.returncode == 3 and f"{file} is a file; name {right}" in result.stderr
    assert file.read_text() == "mine"


def test_a_refused_graph_leaves_no_directory_behind(tmp_path: Path) -> None:
    parts = iter([analysis_pb2.GraphResponse(content=b"SQLite format 3")])
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "there", tmp_path / "new" / "inner"):
        with pytest.raises(ServerError, match="does not know this request"):
            ExplorerFiles(out, lambda done, total: None).write(parts)
        parts = iter([analysis_pb2.GraphResponse(content=b"SQLite format 3")])
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_files_of_model_explorer_are_written_by_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ExplorerFiles(tmp_path / "out", lambda done, total: None).write(
            [analysis_pb2.GraphResponse(file="target.json"), analysis_pb2.GraphResponse(content=b"{}")]
        )
    finally:
        os.umask(before)
    assert (tmp_path / "out" / "target.json").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


def test_names_of_files(tmp_path: Path) -> None:
    assert vis_file(tmp_path / "x.vis.db", compare=True) == tmp_path / "x.vis.db"
    assert vis_file(tmp_path, compare=True).name.startswith("compare_")
    (tmp_path / "b.vis.db").touch()
    (told,) = other_graphs(tmp_path / "a.vis.db")
    assert "also holds b.vis.db" in told
    assert not list(other_graphs(tmp_path / "b.vis.db"))


def msprobe(*arguments: object, binary: str | None = None) -> subprocess.CompletedProcess[str]:  # noqa: F811
    program = "from msprobe_client.compat.legacy import main; main()"
    environment = os.environ | ({"MSPROBE_SERVER_BINARY": binary} if binary else {})
    return subprocess.run(
        [sys.executable, "-c", program, "graph_visualize", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--rank_size 2 --tp 2", "--pp needs 1 value, one for each side"),
        ("--rank_size 2 2 --tp 2 2 --pp 1 1", "--rank_size needs 1 value"),
        ("--rank_size 2 --tp 0 --pp 1", "--tp 0 is not allowed: it must be 1 to"),
        ("--rank_size 99999999999 --tp 1 --pp 1", "--rank_size 99999999999 is not allowed"),
        ("--rank_size 2 --tp 1 --pp 2 --vpp 0", "--vpp 0 is not allowed"),
        ("--rank_size 2 --tp 1 --pp 2 --vpp 1 2", "--vpp needs 1 value"),
        ("--rank_size 2 --tp 2 --pp 1 --order tp-pp dp-pp", "--order needs 1 value"),
        ("--order pp-tp", "--order is for merging ranks: give --rank_size"),
        ("--vpp 2", "--vpp is for merging ranks: give --rank_size"),
        ("--rank_size x", "invalid int value: 'x'"),
        ("--file_type xml", "invalid choice"),
    ],
)
def test_options_that_cannot_be(arguments: str, problem: str, tmp_path: Path) -> None:
    result = msprobe("-tp", tmp_path, "-o", tmp_path / "out", *arguments.split())
    assert result.returncode == 2 and problem in result.stderr.splitlines()[-1] and not (tmp_path / "out").exists()


TENSOR: dict[str, object] = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
TENSOR |= {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0}
DUMP: dict[str, object] = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
DUMP["data"] = {"Torch.add.0.forward": {"input_args": [TENSOR], "output": [TENSOR]}}
FILES = {
    "dump.json": json.dumps(DUMP),
    "construct.json": json.dumps({"Torch.add.0.forward": "Module.a.A.forward.0", "Module.a.A.forward.0": None}),
    "stack.json": json.dumps({"0": [["Torch.add.0.forward"], ["File a.py, line 1, in f, \n g()"]]}),
}


def write(directory: Path, **changed: str | None) -> Path:
    directory.mkdir(parents=True)
    for name, usual in FILES.items():
        text = changed.get(name.partition(".")[0], usual)
        if text is not None:
            (directory / name).write_text(text)
    return directory


def test_ranks_and_steps_and_what_one_side_lacks(tmp_path: Path, binary: str) -> None:  # noqa: F811
    for step in (0, 1):
        for rank in (0, 1, 2):
            write(tmp_path / "a" / f"step{step}" / f"rank{rank}")
            if rank < 2:
                write(tmp_path / "b" / f"step{step}" / f"rank{rank}", stack=None)
    sides = ("-tp", tmp_path / "a", "-gp", tmp_path / "b")
    result = msprobe(*sides, "-o", tmp_path / "out", "-progress_log", binary=binary)
    assert result.returncode == 0, result.stderr
    assert "only the target has step 1 rank2" in result.stdout
    assert f"{tmp_path}/b/step1/rank1/stack.json is missing: the graph shows no stacks" in result.stdout
    states = [json.loads(line[10:]) for line in result.stdout.splitlines() if line.startswith("PROGRESS: ")]
    assert [state["current_progress"] for state in states] == [24, 49, 74, 99, 100, 100]
    assert not states[-1]["process_running"]
    (file,) = (tmp_path / "out").iterdir()
    connection = sqlite3.connect(file)
    assert connection.execute("select rank_list, step_list, graph_type from tb_config").fetchall() == [
        ("[0, 1]", "[0, 1]", "compare")
    ]
    assert connection.execute("select count(*), count(distinct id) from tb_nodes").fetchone() == (24, 24)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_report_names_the_directory_that_cannot_be_read(tmp_path: Path, binary: str) -> None:  # noqa: F811
    write(tmp_path / "a" / "step0" / "rank0")
    write(tmp_path / "b" / "step0" / "rank0", dump="[]")
    result = subprocess.run(
        [sys.executable, "-m", "msprobe_client", "report", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "r.html"],
        env={**os.environ, "MSPROBE_SERVER_BINARY": binary},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3 and not (tmp_path / "r.html").exists()
    assert f"{tmp_path / 'b'} cannot be read: " in result.stderr and "step0/rank0/dump.json: line 1" in result.stderr

"""trend-database, and msprobe data2db: requests, files and messages."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run
from fake_server import FakeServer
from test_compare import binary  # noqa: F401

from msprobe_client.proto import analysis_pb2
from msprobe_client.trend_file import kinds_in, trend_file

TENSOR: dict[str, object] = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
TENSOR |= {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 2.0}
DUMP = {"task": "statistics", "data": {"Torch.add.0.forward": {"input_args": [TENSOR], "output": [TENSOR]}}}
CSV = "vpp_stage,name,step,max\n0,fc.weight,3,1.5\n"


def dump(directory: Path, step: int = 0) -> Path:
    rank = directory / f"step{step}" / "rank0"
    rank.mkdir(parents=True)
    (rank / "dump.json").write_text(json.dumps(DUMP))
    (rank / "construct.json").write_text('{"Torch.add.0.forward": null}')
    return directory


def monitored(directory: Path) -> Path:
    rank = directory / "Nov26_02-58-18-rank0-9b4730e6"
    rank.mkdir(parents=True)
    (rank / "param_origin_3-3.csv").write_text(CSV)
    return directory


def msprobe(*arguments: object, binary: str | None = None) -> subprocess.CompletedProcess[str]:  # noqa: F811
    program = "from msprobe_client.compat.legacy import main; main()"
    environment = os.environ | ({"MSPROBE_SERVER_BINARY": binary} if binary else {})
    return subprocess.run(
        [sys.executable, "-c", program, "data2db", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def rows(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        sql = "select rank, step, target_name, max from trend_data join monitoring_targets using (target_id)"
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_the_request_and_the_file(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.json"
    mapping.write_text('{"fc": "linear"}')
    file = tmp_path / "trends" / "a.trend.db"
    options = ("--micro-steps", "--mapping", mapping, "--step", "3-5", "--rank", "1", "-o", file)
    result = run_client("trend-database", "training", *options, "--server", server.address)
    assert result.returncode == 0, result.stderr
    assert "a step has no calls" in result.stderr and str(file) in result.stdout
    assert file.read_bytes() == b"SQLite format 3" and list(file.parent.iterdir()) == [file]
    assert file.stat().st_mode & 0o022 == 0
    (request,) = server.requests
    assert request.source.run == "training" and request.micro_steps
    assert request.kind == analysis_pb2.TrendDatabaseRequest.KIND_RECORDS
    assert [(name.target, name.golden) for name in request.renames] == [("fc", "linear")]
    assert (request.scope.steps[0].first, request.scope.ranks[0].number) == (3, 1)


def test_a_server_of_others_reads_no_files_of_a_monitor(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    options = ("-o", tmp_path / "out", "--server", server.address)
    result = run_client("trend-database", monitored(tmp_path / "data"), *options)
    assert result.returncode == 3 and "leave out --server" in result.stderr


def test_what_directories_hold(tmp_path: Path) -> None:
    assert kinds_in(monitored(tmp_path / "a")) == ["monitor"]
    assert kinds_in(dump(tmp_path / "a")) == ["dump", "monitor"]
    assert kinds_in(tmp_path / "a" / "step0") == kinds_in(tmp_path / "a" / "step0" / "rank0") == ["dump"]
    (tmp_path / "b").mkdir()
    assert kinds_in(tmp_path / "b") == []
    assert trend_file(tmp_path / "x.trend.db", "dump") == tmp_path / "x.trend.db"
    assert trend_file(tmp_path, "monitor") == tmp_path / "monitor_data.trend.db"


def test_each_kind_that_is_there_has_a_file(tmp_path: Path, binary: str) -> None:  # noqa: F811
    data, out = monitored(dump(tmp_path / "data", step=4)), tmp_path / "out"
    result = msprobe("--data", data, "--db", out, "--micro_step", "FALSE", binary=binary)
    assert result.returncode == 0, result.stderr
    assert rows(out / "dump_data.trend.db") == [(0, 4, "Torch.add.input.0", 1.0), (0, 4, "Torch.add.output.0", 1.0)]
    assert rows(out / "monitor_data.trend.db") == [(0, 3, "fc.weight", 1.5)]
    mapping = tmp_path / "mapping.json"
    mapping.write_text('{"Torch": "T", "fc": "up"}')
    result = msprobe("--data", data, "--db", out, "--mapping", mapping, binary=binary)
    assert result.returncode == 0, result.stderr
    assert [row[1:3] for row in rows(out / "dump_data.trend.db")] == [(0, "T.add.input.0"), (0, "T.add.output.0")]
    assert [row[1:3] for row in rows(out / "monitor_data.trend.db")] == [(0, "up.weight")]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--process_num", "0"], 2, "'0' is no number from 1 to 128"),
        (["--process_num", "129"], 2, "'129' is no number from 1 to 128"),
        (["--micro_step", "yes"], 2, "invalid choice: 'yes'"),
        (["--format", "csv"], 2, "invalid choice: 'csv'"),
        (["--data", "{}/absent"], 3, "absent does not exist; name a dump_path"),
        (["--data", "{}/file"], 3, "file is not a directory; name a dump_path"),
        (["--db", "{}/file"], 3, "file is not a directory"),
        (["--data", "{}/empty"], 3, "empty holds neither a dump"),
        (["--mapping", "{}/absent.json"], 3, "absent.json"),
        (["--mapping", "{}/list.json"], 3, "list.json: it is not a mapping of names to names"),
        (["--format", "monitor"], 3, "holds no files of a training monitor"),
        (["--data", "{}/whole"], 3, "there is no tensor of a floating dtype"),
        (["--data", "{}/broken"], 3, "dump.json: line 1"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing(
    arguments: list[str],
    code: int,
    problem: str,
    tmp_path: Path,
    binary: str,  # noqa: F811
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[]")
    for name, text in (("whole", json.dumps(DUMP).replace("float32", "int32")), ("broken", '{"data": {')):
        (dump(tmp_path / name) / "step0" / "rank0" / "dump.json").write_text(text)
    given = {"--data": str(dump(tmp_path / "data")), "--db": str(tmp_path / "out")}
    given |= {arguments[0]: arguments[1].format(tmp_path)}
    result = msprobe(*[text for option in given.items() for text in option], binary=binary)
    assert result.returncode == code and problem in result.stderr
    assert code == 2 or result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("out/*"))

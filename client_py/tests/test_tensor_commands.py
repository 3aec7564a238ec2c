"""trend, find, records with filters, tensor previews and slices, overflow --follow: requests and output of the
commands.
"""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import Run, rows, strict
from fake_server import FakeServer
from test_compare import binary, recorded  # noqa: F401

from msprobe_client.model import Rank
from msprobe_client.output import plot
from msprobe_client.proto import analysis_pb2
from msprobe_client.tensors import TrendPoint, TrendSeries

OUTPUT = "Functional.linear.0.forward.output.0"


@pytest.fixture
def ask(server: FakeServer, run_client: Run) -> Run:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_client(arguments[0], *arguments[1:], "--server", server.address)

    return run


def test_a_trend_is_a_row_a_point(ask: Run, server: FakeServer) -> None:
    result = ask("trend", "training", "*.output.0", "--statistic", "max", "--step", "0-5", "--rank", "1")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["NAME", "RANK", "STATISTIC", "STEP", "TOKEN", "VALUE"]
    assert lines[1].split() == [OUTPUT, "rank0", "max", "0", "0", "0.5"]
    assert len(lines) == 1 + 3 + 4 and lines[5].split()[-1] == "NaN"
    (request,) = server.requests
    assert list(request.statistics) == [analysis_pb2.STATISTIC_MAX]
    assert (request.scope.name_glob, request.scope.ranks[0].number) == ("*.output.0", 1)
    assert (request.scope.steps[0].first, request.scope.steps[0].last) == (0, 5)


def test_a_trend_is_csv_json_and_the_difference_of_two(ask: Run) -> None:
    points = list(
        csv.DictReader(ask("trend", "training", "*", "--diff", "other", "--format", "csv").stdout.splitlines())
    )
    assert len(points) == 7
    assert (points[0]["statistic"], points[0]["value"], points[0]["golden"], points[0]["difference"]) == (
        "norm",
        "0.5",
        "0.25",
        "0.25",
    )
    series = rows(ask("trend", "training", "*", "-s", "norm", "-s", "nan", "--format", "json"))
    assert [(one["rank"], one["statistic"]) for one in series] == [
        ("rank0", "norm"),
        ("rank1", "norm"),
        ("rank0", "nan"),
        ("rank1", "nan"),
    ]
    assert (
        series[1]["step"] == [0, 1, 2, 3]
        and series[1]["value"] == [0.5, "NaN", 2.5, 3.5]
        and series[3]["value"] == [0.5, "NaN", 2.5, None]
    )


def test_what_was_not_captured_is_absent_and_no_nan(ask: Run) -> None:
    points = list(csv.DictReader(ask("trend", "training", "*", "-s", "nan", "--format", "csv").stdout.splitlines()))
    assert [row["value"] for row in points] == ["0.5", "1.5", "2.5", "0.5", "NaN", "2.5", ""]
    assert "rank1 nan: not finite at step 1\n" in ask("trend", "training", "*", "-s", "nan", "--plot").stdout


def test_a_trend_is_drawn(ask: Run, tmp_path: Path) -> None:
    result = ask("trend", "training", "*", "--plot")
    assert result.returncode == 0, result.stderr
    assert f"{OUTPUT} rank0 norm" in result.stdout and "\x1b" not in result.stdout
    assert "\u2524" in result.stdout  # an axis
    assert f"{OUTPUT} rank1 norm: not finite at step 1" in result.stdout
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / f"trend{suffix}"
        assert ask("trend", "training", "*", "-o", path).returncode == 0
        assert path.read_bytes().startswith(start)
    assert sorted(path.name for path in tmp_path.glob("t*")) == ["trend.png", "trend.svg"]


def test_what_was_not_captured_is_not_drawn(ask: Run, tmp_path: Path) -> None:
    for drawn in (["--plot"], ["-o", str(tmp_path / "empty.png")]):
        result = ask("trend", "training", "of another task", "-s", "nan", *drawn)
        assert result.returncode == 3 and result.stdout == ""
        assert "nothing to draw: nan was captured in none of these steps" in result.stderr
    assert not list(tmp_path.glob("*.png"))


def test_trends_that_are_not_there_or_not_possible(ask: Run) -> None:
    result = ask("trend", "training", "nothing")
    assert result.returncode == 3 and "no tensor of training is called nothing" in result.stderr
    assert ask("trend", "training", "*", "--statistic", "median").returncode == 2
    assert ask("trend", "training", "*", "--plot", "--format", "csv").returncode == 2


def test_lines_count_through_tokens_where_steps_have_several() -> None:
    points = tuple(TrendPoint(step, token, float(step), None) for step in (0, 1) for token in (0, 1))
    series = TrendSeries("a", Rank("rank", 0), "max", "torch.float32", "[1]", points)
    assert list(plot._lines([series])) == [("a rank0 max", [0, 1, 2, 3], [0.0, 0.0, 1.0, 1.0])]


FILTERS = (
    *("--regex", "linear.*output", "--dtype", "float32", "--dtype", "bfloat16", "--shape", "[2, *]"),
    *("--where", "max > 1e4", "--where", "nan>=1", "--module", "model.layers.0", "--stack-text", "train.py"),
)


@pytest.mark.parametrize("command", ["find", "records"])
def test_filters_reach_the_server(ask: Run, server: FakeServer, command: str) -> None:
    result = ask(command, "training", "--name", "Functional.*", *FILTERS, "--format", "json")
    assert result.returncode == 0, result.stderr
    (row,) = rows(result)
    assert (row["name"], row["max"], row["min"], row["nan_count"], row["content"]) == (OUTPUT, 2.5, None, 3, True)
    (request,) = server.requests
    assert request.source.run == "training" and request.scope.name_glob == "Functional.*"
    assert (request.name_regex, list(request.dtypes)) == ("linear.*output", ["float32", "bfloat16"])
    assert (request.shape, request.module, request.stack_text) == ("[2, *]", "model.layers.0", "train.py")
    assert [(item.statistic, item.comparison, item.value) for item in request.predicates] == [
        (analysis_pb2.STATISTIC_MAX, analysis_pb2.StatisticPredicate.GREATER, 1e4),
        (analysis_pb2.STATISTIC_NAN, analysis_pb2.StatisticPredicate.GREATER_OR_EQUAL, 1.0),
    ]


@pytest.mark.parametrize("text", ["max", "max > big", "median > 3", "max ~ 3", "> 3"])
def test_a_predicate_that_is_none(ask: Run, text: str) -> None:
    result = ask("find", "training", "--where", text)
    assert result.returncode == 2 and "is not understood" in result.stderr.replace("\n", " ")


def test_a_preview_shows_a_histogram_and_both_ends(ask: Run, server: FakeServer) -> None:
    result = ask("tensor", "training", OUTPUT, "--bins", "2", "--top", "1")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[:2] == ["torch.float32 [2, 3]: 6 elements, 5 finite", "NaN 1, +Inf 0, -Inf 0"]
    assert lines[2] == "max 4  min -1  mean 1  std 1.5  norm 4.5  zeros 2"
    assert lines[3].split() == ["-1", "..", "1.5", "\u2588" * 40, "4"]
    assert lines[5:] == ["largest: 4 at [1, 2]", "smallest: -1 at [0, 0]", "not finite: NaN at [0, 1]"]
    find, preview = server.requests
    assert find.scope.name_glob == OUTPUT
    assert (preview.step, preview.rank.number, preview.bins, preview.top) == (0, 0, 2, 1)
    (row,) = rows(ask("tensor", "training", OUTPUT, "--step", "1", "--rank", "0", "--format", "json"))
    assert (row["bin_counts"], row["largest"]) == ([4, 1], [{"index": [1, 2], "value": 4.0}])


def test_a_preview_of_a_name_that_many_or_none_have(ask: Run) -> None:
    result = ask("tensor", "training", "many")
    assert result.returncode == 3 and "step 0 rank0, step 0 rank1" in result.stderr
    result = ask("tensor", "training", "nothing")
    assert result.returncode == 3 and "no tensor nothing" in result.stderr


def test_a_part_is_asked_for_as_python_says_it(ask: Run, server: FakeServer, tmp_path: Path) -> None:
    result = ask("tensor", "training", OUTPUT, "-o", tmp_path / "t.npy", "--slice", "[3, -2:, :8, 1:9:2, ::4, :]")
    assert result.returncode == 0, result.stderr
    (request,) = server.requests
    parts = [
        (
            part.start if part.HasField("start") else None,
            part.stop if part.HasField("stop") else None,
            part.step,
            part.index,
        )
        for part in request.slices
    ]
    assert parts == [
        (3, None, 0, True),
        (-2, None, 0, False),
        (None, 8, 0, False),
        (1, 9, 2, False),
        (None, None, 4, False),
        (None, None, 0, False),
    ]
    for text in ("a", "1:2:0", "", "1,,2"):
        assert ask("tensor", "training", OUTPUT, "-o", tmp_path / "u.npy", "--slice", text).returncode == 2
    assert ask("tensor", "training", OUTPUT, "--slice", "0").returncode == 2


def test_overflow_follows_a_run_as_it_goes(server: FakeServer) -> None:
    server.hold.clear()
    command = [sys.executable, "-m", "msprobe_client", "overflow", "training", "--follow", "--server", server.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ORIGIN")
        assert process.stdout.readline().split()[:3] == ["computation", OUTPUT, "0"]  # while the server still waits
        server.hold.set()
        assert process.stdout.readline().split()[:3] == ["computation", OUTPUT, "1"]
        assert process.wait(30) == 1
    assert server.requests[0].follow


def test_overflow_writes_the_mindstudio_file_of_a_run(ask: Run, server: FakeServer, tmp_path: Path) -> None:
    entry = {"input_args": [], "output": [{"type": "torch.Tensor", "Max": float("nan")}]}
    server.overflow_entry = analysis_pb2.Overflow(
        entry_json=json.dumps(entry), modules=["Module.a", "Functional.linear.0.forward"], stack=["File a.py"]
    )
    result = ask("overflow", "training", "--anomalies", tmp_path / "out")
    assert server.requests[-1].with_entries
    assert result.returncode == 1, result.stderr
    told, saved = result.stdout.splitlines()[-2:]
    assert told.startswith("first: step 0 rank0") and saved.endswith(".json")
    (path,) = (tmp_path / "out").iterdir()
    (node,) = json.loads(path.read_text())["rank_0"]
    assert node["op_name"] == "Functional.linear.0.forward" and "NaN" in path.read_text()
    assert node["construct_info"] == ["Module.a", "Functional.linear.0.forward"]
    assert node["stack_info"] == ["File a.py"]


@pytest.mark.parametrize("arguments", [["compare", "a", "b", "--format", "json"], ["overflow", "a"]])
def test_ctrl_c_cancels_on_the_server_too(server: FakeServer, arguments: list[str]) -> None:
    server.hold.clear()
    command = [sys.executable, "-m", "msprobe_client", *arguments, "--server", server.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not server.requests:  # until the call has begun
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert server.cancelled.wait(30)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and errors == "msprobe-client: interrupted\n"


def test_a_document_that_breaks_off_is_whole(server: FakeServer) -> None:
    server.hold.clear()
    follow = ["overflow", "training", "--follow", "--format", "json", "--server", server.address]
    command = [sys.executable, "-m", "msprobe_client", *follow]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        begun = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        answer = strict(begun + process.communicate(timeout=30)[0])
    assert process.returncode == 130
    assert (len(answer["rows"]), answer["error"]) == (1, "interrupted")


def test_the_real_server_answers_all_of_it(binary: str, run_client: Run, tmp_path: Path) -> None:  # noqa: F811
    """On the recorded tensors, as a run and as a directory."""
    directory = recorded("tensor_golden")
    environment = {"MSPROBE_SERVER_BINARY": binary}
    store = ["--data_dir", tmp_path / "store"]
    assert run_client("import", directory, "--run", "golden", *store, **environment).returncode == 0
    name = "Functional.linear.0.forward.input.1"
    for source, where in (("golden", store), (directory, [])):
        result = run_client("trend", source, name, *where, "--diff", source, "--format", "csv", **environment)
        (row,) = csv.DictReader(result.stdout.splitlines())
        assert (row["name"], row["step"], float(row["difference"])) == (name, "0", 0.0)
        result = run_client(
            "find", source, *where, "--name", name, "--where", "norm > 0", "--format", "json", **environment
        )
        (found,) = rows(result)
        assert (found["name"], found["content"], found["norm"]) == (name, True, float(row["value"]))
        result = run_client("tensor", source, name, *where, "--format", "json", **environment)
        (preview,) = rows(result)
        assert (
            preview["max"] == pytest.approx(found["max"], rel=1e-6)
            and sum(preview["bin_counts"]) == preview["elements"]
        )
    filtered = ["--regex", "linear.*input.1$", "--format", "json"]
    result = run_client("records", "golden", *store, *filtered, **environment)
    assert {row["dtype"] for row in rows(result)} == {"torch.float32"}
    for part, chosen in ((None, np.s_[:]), ("1:4, ::3", np.s_[1:4, ::3]), ("-1", np.s_[-1])):
        path = tmp_path / "part.npy"
        options = [] if part is None else ["--slice", part]
        result = run_client("tensor", "golden", name, *store, "-o", path, *options, **environment)
        assert result.returncode == 0, result.stderr
        if part is None:
            whole = np.load(path)
        assert np.array_equal(np.load(path), whole[chosen])

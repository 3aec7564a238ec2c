"""The command line, as a user sees it: lines, exit codes, files."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from conftest import Run, rows, strict
from fake_server import FakeServer

from msprobe_client import __version__


def test_runs_as_a_table(server: FakeServer, run_client: Run) -> None:
    result = run_client("runs", "--server", server.address, TZ="UTC")
    assert (result.returncode, result.stderr) == (0, "")
    header, line = result.stdout.splitlines()
    assert header.split() == ["RUN", "CREATED", "STEPS", "RANKS", "RECORDS", "TENSORS", "NaN", "Inf", "BYTES", "OWNER"]
    cells = "training 2023-11-14 22:13:20 2 rank0-1 8 16 4 0 3.0 KiB token trainers"
    assert line.split() == cells.split()


@pytest.mark.parametrize("place", ["before", "after", "environment"])
def test_the_server_may_be_named_in_three_places(server: FakeServer, run_client: Run, place: str) -> None:
    option = ["--server", server.address, "--format", "json"]
    if place == "before":
        result = run_client(*option, "runs")
    elif place == "after":
        result = run_client("runs", *option)
    else:
        result = run_client("runs", "--format", "json", MSPROBE_SERVER=server.address)
    assert rows(result)[0]["ranks"] == ["rank0", "rank1"]


def test_steps_in_each_format(server: FakeServer, run_client: Run) -> None:
    server.steps[0].gaps.add(step=0, fragments=5, payloads=1, reason=1)
    tables = [
        run_client("steps", "training", "--server", server.address, "--format", name).stdout
        for name in ("table", "json", "csv")
    ]
    assert "dropped: 5 fragments, 1 payloads" in tables[0].splitlines()[1]
    lines = strict(tables[1])["rows"]
    assert [(line["step"], line["rank"], line["state"]) for line in lines][1] == (0, "rank1", "complete")
    assert lines[0]["gaps"] == [{"step": 0, "fragments": 5, "payloads": 1, "reason": "dropped"}]
    table = list(csv.DictReader(io.StringIO(tables[2])))
    assert (len(table), table[3]["step"], table[3]["rank"], table[0]["gap_fragments"]) == (4, "1", "rank1", "5")


def test_records_table_has_a_line_for_each_tensor_and_each_record_without(server: FakeServer, run_client: Run) -> None:
    result = run_client("records", "training", "--step", 0, "--rank", "rank0", "--server", server.address)
    lines = [line.split() for line in result.stdout.splitlines()]
    titles = "NAME DTYPE SHAPE MAX MIN MEAN NORM NaN Inf CHECKSUM NOTE"
    assert lines[0] == titles.split()
    assert lines[1] == [
        "Functional.linear.0.forward.input.0",
        "torch.float32",
        "[1,",
        "8]",
        "0.5",
        "-0.5",
        "0.125",
        "2",
        "0",
        "0",
        "3df3c1ba",
    ]
    assert lines[4] == [
        "Functional.linear.0.forward.output.0",
        "torch.float32",
        "[1,",
        "8]",
        "NaN",
        "NaN",
        "NaN",
        "NaN",
        "3",
        "0",
    ]
    assert lines[5] == ["Torch.arange.0.forward", "never", "ended"]
    assert len(lines) == 6


def test_records_as_strict_json_one_record_to_a_line(server: FakeServer, run_client: Run) -> None:
    result = run_client(
        "records", "training", "--step", 0, "--rank", 0, "--stack", "--server", server.address, "--format", "json"
    )
    first, second = rows(result)
    assert first["fields"]["output"][0]["max"] == "NaN"
    assert first["fields"]["input_kwargs"]["p"] == "Infinity"
    assert first["fields"]["input_args"][1]["max"] == 9007199254740993
    assert first["fields"]["input_args"][0]["shape"] == [1, 8]
    assert first["stack"][0]["function"] == "main"
    assert (second["name"], second["complete"], second["parent"]) == ("Torch.arange.0.forward", False, None)


def test_records_as_csv_keep_every_digit(server: FakeServer, run_client: Run) -> None:
    result = run_client(
        "records", "training", "--step", 0, "--rank", 0, "--name", "*linear*", "--format", "csv",
        "--server", server.address,
    )  # fmt: skip
    table = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["max"] for row in table] == ["0.5", "9007199254740993", "True", "NaN"]
    assert (table[1]["mean"], table[0]["shape"], table[0]["record"]) == ("", "1 8", "Functional.linear.0.forward")


def test_records_of_ranges_and_of_several_ranks(server: FakeServer, run_client: Run) -> None:
    def places(*arguments: object) -> list[tuple[int, str]]:
        result = run_client("records", "training", "--server", server.address, "--format", "json", *arguments)
        assert result.returncode == 0, result.stderr
        return [(line["step"], line["rank"]) for line in rows(result) if line["name"].startswith("Functional")]

    assert places("--step", "0-5", "--rank", "1") == [(0, "rank1"), (1, "rank1")]
    assert places("--step", "1", "--step", "0") == [(0, "rank0"), (0, "rank1"), (1, "rank0"), (1, "rank1")]
    result = run_client("records", "training", "--step", "7-9", "--server", server.address)
    assert result.returncode == 3
    assert result.stderr == (
        "msprobe-client: run training has no step 7-9; it has step 0 rank0, step 0 rank1, step 1 rank0, step 1 rank1\n"
    )


def test_a_table_says_of_which_step_and_rank_a_record_is_where_there_are_several(
    server: FakeServer, run_client: Run
) -> None:
    def heading(*arguments: object) -> list[str]:
        result = run_client("records", "training", "--server", server.address, *arguments)
        assert result.returncode == 0, result.stderr
        return str(result.stdout).splitlines()[0].split()[:3]

    assert heading("--step", "0", "--rank", "1") == ["NAME", "DTYPE", "SHAPE"]
    assert heading("--rank", "1") == ["NAME", "STEP", "DTYPE"]
    assert heading("--step", "0") == ["NAME", "RANK", "DTYPE"]
    assert heading() == ["NAME", "STEP", "RANK"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runs"], "MSPROBE_SERVER"),
        (["runs", "--server", "nonsense"], "host:port"),
        (["runs", "--server", "a:1", "--data_dir", "/tmp"], "exclude"),
        (["runs", "--format", "xml", "--server", "a:1"], "xml"),
        (["records", "r", "--step", "x", "--server", "a:1"], "3-5"),
        (["records", "r", "--step", "5-3", "--server", "a:1"], "after the last"),
        (["records", "r", "--rank", "x1", "--server", "a:1"], "proc123"),
        (["export", "r", "--server", "a:1"], "--output"),
        (["import", "d", "--server", "a:1"], "--run"),
        (["tensor", "r", "n", "-o", "f.txt", "--server", "a:1"], ".npy"),
        (["nothing"], "nothing"),
    ],
)
def test_a_wrong_command_line_exits_2_and_names_what_is_allowed(
    run_client: Run, arguments: list[str], words: str
) -> None:
    result = run_client(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr and "Traceback" not in result.stderr


def test_no_server_there_is_one_line_and_exit_3(run_client: Run, tmp_path: Path) -> None:
    result = run_client("runs", "--server", f"unix:{tmp_path}/none")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith(f"msprobe-client: msprobe-server at unix:{tmp_path}/none cannot be reached")
    assert result.stderr.count("\n") == 1


def test_an_unknown_run_is_one_line_and_exit_3(server: FakeServer, run_client: Run) -> None:
    result = run_client("steps", "other", "--server", server.address)
    assert result.returncode == 3
    assert (
        result.stderr
        == f'msprobe-client: msprobe-server at {server.address}: there is no run "other"; there is: training\n'
    )


def test_a_failing_server_is_one_line_and_exit_3(server: FakeServer, run_client: Run) -> None:
    server.fail = (grpc.StatusCode.INTERNAL, "corruption in block 3")
    result = run_client("runs", "--server", server.address)
    assert result.returncode == 3
    assert "corruption in block 3" in result.stderr and result.stderr.count("\n") == 1


def test_export_import_tensor_delete(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["export", "training", "--output", out, "--step", "0-1", "--rank", "0", "--server", server.address]
    result = run_client(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()][1:] == [
        [f"{out}/step0/rank0", "2", "24", "B"],
        [f"{out}/step1/rank0", "2", "24", "B"],
    ]
    again = run_client(*arguments)
    assert again.returncode == 3 and "--force" in again.stderr
    assert run_client(*arguments, "--force").returncode == 0

    result = run_client("import", out, "--run", "copy", "--server", server.address, "--format", "json")
    assert (result.returncode, result.stderr) == (0, "msprobe-client: warning: notes.txt was left out\n")
    assert rows(result)[0]["records"] == 2
    assert strict(result.stdout)["warnings"] == ["warning: notes.txt was left out"]
    assert server.imported["step1/rank0/dump.json"] == b'{"task": "statistics"}'

    target = tmp_path / "weight.npy"
    result = run_client("tensor", "training", "a.0.npy", "-o", target, "--server", server.address)
    assert (result.returncode, result.stdout, target.read_bytes()) == (0, f"{target}\n", b"\x93NUMPY")
    assert server.requests[-1].name == "a.0"

    assert run_client("delete", "training", "--server", server.address).returncode == 0
    assert run_client("delete", "other", "--server", server.address).returncode == 3


def test_export_asks_for_no_ranks_and_steps_that_do_not_exist(
    server: FakeServer, run_client: Run, tmp_path: Path
) -> None:
    result = run_client("export", "training", "-o", tmp_path / "o", "--rank", "proc5", "--server", server.address)
    assert result.returncode == 3 and "training has no rank proc5; it has step 0" in result.stderr
    assert not (tmp_path / "o").exists()


def test_an_output_that_cannot_be_written_is_one_line(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for arguments in (
        ["export", "training", "-o", tmp_path / "file" / "x"],
        ["tensor", "training", "a", "-o", tmp_path / "no" / "x.pt"],
    ):
        result = run_client(*arguments, "--server", server.address)
        assert result.returncode == 3
        assert str(tmp_path) in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("subcommand", ["records", "export"])
def test_ctrl_c_cancels_the_call_and_leaves_nothing(
    server: FakeServer, tmp_path: Path, subcommand: str, sent: signal.Signals
) -> None:
    server.hold.clear()
    out = tmp_path / "out"
    arguments = ["--step", "0", "--rank", "0"] + (["--output", str(out)] if subcommand == "export" else [])
    with subprocess.Popen(
        [sys.executable, "-m", "msprobe_client", subcommand, "training", *arguments, "--server", server.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not any(type(item).__name__ in ("ReadRecordsRequest", "ExportRequest") for item in server.requests):
            assert process.poll() is None
        process.send_signal(sent)
        try:
            _, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, stderr) == (130, "msprobe-client: interrupted\n")
    assert server.cancelled.wait(10)
    assert not out.exists() or not list(out.iterdir())


def test_a_reader_that_has_seen_enough(server: FakeServer) -> None:
    command = (
        f"{sys.executable} -m msprobe_client steps training --server {server.address} | true; echo ${{PIPESTATUS[0]}}"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr == ""
    assert result.stdout.strip() in ("0", "141")  # it may have written before the reader left


def test_a_table_does_not_let_names_move_the_cursor(server: FakeServer, run_client: Run) -> None:
    server.steps[0].gaps.add(reason=1)
    result = run_client("tensor", "training", "a\x1b[2J", "-o", "/nonexistent/x.pt", "--server", server.address)
    assert result.returncode == 3
    assert "\x1b" not in result.stderr
    from msprobe_client.output import Column, Ending, Format, write

    out = io.StringIO()
    write(
        Format.table,
        [Column("name", "NAME")],
        [{"name": "a\x1b[2Jb\nc\u202e"}],
        out,
        ending=lambda: Ending(shown=["first: a\x1b[2J\nb"]),
    )
    assert out.getvalue() == "NAME\na\\x1b[2Jb\\nc\\u202e\nfirst: a\\x1b[2J\\nb\n"


def test_a_progress_bar_appears_on_a_terminal_only(server: FakeServer, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "msprobe_client", "export", "training", "-o", tmp_path / "out",
         "--server", server.address],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            shown += more
        process.wait(60)
    os.close(ours)
    assert process.returncode == 0
    assert b"export training" in shown


def test_version(run_client: Run) -> None:
    for option in ("--version", "-V"):
        assert run_client(option).stdout == f"msprobe-client {__version__}\n"

"""The command `msprobe`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from fake_server import FakeServer

from msprobe_client.scratch import PREFIX, scratch_directory

ABSENT = [
    "offline_dump",
    "install_deps",
    "graph",
]


def msprobe(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from msprobe_client.compat.legacy import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        ["overflow_check", "-i", "{0}/step0", "-o", "{0}/out"],
        ["compare", "-tp", "{0}/step0", "-gp", "{0}/step0", "-o", "{0}/out"],
        ["graph_visualize", "-tp", "{0}/step0", "-o", "{0}/out"],
        ["data2db", "--data", "{0}", "--db", "{0}/out"],
        ["acc_check", "-api_info", "{0}/step0/rank0/dump.json", "-o", "{0}/out"],
    ],
    ids=lambda command: str(command[0]),
)
def test_what_a_killed_command_leaves_is_cleared_by_the_next(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = tmp_path / "dump" / "step0" / "rank0"
    rank.mkdir(parents=True)
    (rank / "dump.json").write_text(
        '{"task": "statistics", "level": "L1", "framework": "pytorch", "data": {"Torch.relu.0.forward": {}}}'
    )
    silent = tmp_path / "server"  # so that the command has to wait
    started = tmp_path / "started"
    silent.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 10\n")
    silent.chmod(0o755)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "MSPROBE_SERVER_BINARY": str(silent)}
    program = "from msprobe_client.compat.legacy import main; main()"
    arguments = [each.format(rank.parents[1]) for each in command]
    with subprocess.Popen([sys.executable, "-c", program, *arguments], env=environment, start_new_session=True) as one:
        while not started.exists():
            assert one.poll() is None, "it ended before it began a server"
            time.sleep(0.01)
        one.kill()
    left = [*temporary.glob(f"{PREFIX}*")]
    assert left
    for each in left:
        os.utime(each, (0, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with scratch_directory() as mine:
        assert [*temporary.glob(f"{PREFIX}*")] == [Path(mine)]


@pytest.mark.parametrize("command", ABSENT)
def test_what_is_not_there_says_so_in_one_line(command: str) -> None:
    result = msprobe(command, "-tp", "a", "-gp", "b")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"msprobe: {command} is not part of this version; ")
    assert result.stderr.count("\n") == 1


def test_the_older_form_with_a_framework_first(tmp_path: Path) -> None:
    result = msprobe("-f", "pytorch", "graph", "-i", "x")
    assert result.returncode == 2 and result.stderr.startswith("msprobe: graph is not part of this version; ")
    result = msprobe("-f", "caffe", "compare", "-i", "x")
    assert (result.returncode, result.stderr) == (2, "msprobe: -f caffe is not known; it is pytorch or mindspore\n")
    file = tmp_path / "compare.json"
    for text, problem in (
        ("{", "is not JSON"),
        ("[]", "not an object"),
        ('{"npu_path": "a"}', 'no text "bench_path"'),
        ('{"npu_path": "nowhere", "bench_path": "nowhere"}', "nowhere does not exist"),
    ):
        file.write_text(text)
        result = msprobe("-f", "pytorch", "compare", "-i", str(file))
        assert result.returncode == 3 and result.stderr.count("\n") == 1 and problem in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--consistent_check"], "--consistent_check needs --backend fsdp or megatron"),
        (["--consistent_check", "--backend", "fsdp", "-da"], "(-da) is not for --consistent_check"),
        (["-fr", "x.json"], "--fusion_rule_file is not for mode auto"),
        (["-m", "offline_model", "--input_data", "x.bin"], "mode offline_model needs CANN and an NPU"),
        (["-m", "atb"], "mode atb needs CANN and an NPU"),
    ],
)
def test_options_that_are_not_there_say_so_in_one_line(arguments: list[str], problem: str) -> None:
    result = msprobe("compare", "-tp", "a", "-gp", "b", *arguments)
    assert result.returncode == 2 and problem in result.stderr and result.stderr.count("\n") == 1


def test_compare_names_what_is_missing() -> None:
    result = msprobe("compare", "-tp", "a")
    assert result.returncode == 2 and "-gp/--golden_path" in result.stderr
    result = msprobe("compare", "-tp", "nowhere", "-gp", "nowhere")
    assert (result.returncode, result.stderr) == (3, "msprobe compare: nowhere does not exist\n")


def test_merge_result_names_what_is_wrong(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"

    def merge(text: str) -> str:
        config.write_text(text)
        result = msprobe("merge_result", "-i", str(tmp_path / "in"), "-o", str(tmp_path / "o"), "-config", str(config))
        assert result.returncode == 3 and result.stderr.count("\n") == 1 and not (tmp_path / "o").exists()
        return result.stderr

    assert "in is not a directory" in merge("api: [a]")
    (tmp_path / "in").mkdir()
    assert "0 ranks" in merge("api: [a]")
    for rank in (0, 1):
        (tmp_path / "in" / f"compare_result_rank{rank}_20260101000000.xlsx").write_bytes(b"junk")
    assert 'no list "api"' in merge("{}")
    assert "is not YAML" in merge("{")
    assert "compare_result_rank0_20260101000000.xlsx is not an xlsx file" in merge("api: [a]")
    (tmp_path / "in" / "mine.xlsx").write_bytes(b"junk")
    assert "mine.xlsx is not called compare_result_rank" in merge("api: [a]")


def test_overflow_check_names_what_is_wrong(tmp_path: Path) -> None:
    result = msprobe("overflow_check", "-i", str(tmp_path / "nowhere"))
    assert result.returncode == 3 and "nowhere is not a directory" in result.stderr and result.stderr.count("\n") == 1


def test_ours_work_under_the_old_name(server: FakeServer) -> None:
    assert "training" in msprobe("runs", "--server", server.address).stdout
    result = msprobe("steps", "other", "--server", server.address)
    assert result.returncode == 3 and result.stderr.startswith("msprobe: ")
    assert msprobe("--version").stdout.startswith("msprobe ")

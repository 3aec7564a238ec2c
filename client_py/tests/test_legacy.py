"""The command `msprobe`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fake_server import FakeServer

ABSENT = [
    "acc_check",
    "multi_acc_check",
    "merge_result",
    "overflow_check",
    "config_check",
    "api_precision_compare",
    "graph_visualize",
    "data2db",
    "parse",
    "offline_dump",
    "install_deps",
]


def msprobe(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from msprobe_client.legacy import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", ABSENT)
def test_what_is_not_there_says_so_in_one_line(command: str) -> None:
    result = msprobe(command, "-tp", "a", "-gp", "b")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"msprobe: {command} is not part of this version; ")
    assert result.stderr.count("\n") == 1


def test_the_older_form_with_a_framework_first() -> None:
    result = msprobe("-f", "pytorch", "compare", "-i", "compare.json")
    assert result.returncode == 2
    assert result.stderr.startswith("msprobe: -f pytorch compare is not part of this version; use `msprobe compare -tp")


def test_compare_names_what_is_missing() -> None:
    result = msprobe("compare", "-tp", "a")
    assert result.returncode == 2 and "-gp/--golden_path" in result.stderr
    result = msprobe("compare", "-tp", "nowhere", "-gp", "nowhere")
    assert (result.returncode, result.stderr) == (3, "msprobe compare: nowhere does not exist\n")
    result = msprobe("compare", "-tp", "a", "-gp", "b", "-da")
    assert result.returncode == 2 and result.stderr.startswith("msprobe compare: -da is not part of this version yet")


def test_ours_work_under_the_old_name(server: FakeServer) -> None:
    assert "training" in msprobe("runs", "--server", server.address).stdout
    result = msprobe("steps", "other", "--server", server.address)
    assert result.returncode == 3 and result.stderr.startswith("msprobe: ")
    assert msprobe("--version").stdout.startswith("msprobe ")

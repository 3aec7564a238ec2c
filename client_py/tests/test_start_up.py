"""Asking for help must not cost as much as work."""

from __future__ import annotations

import subprocess
import sys

import pytest

from msprobe_client.commands import COMMANDS

HEAVY = ("grpc", "google.protobuf", "rich", "pydantic", "asyncio")
# Modules beyond a bare Python's, the cause of what help costs: 140 are usual. A subcommand takes 250, as typer
# loads pydantic to read its options. What they cost in time is measured by tests/operate/test_help.py.
MAX_MODULES = 180
MAX_MODULES_OF_SUBCOMMAND = 300
MAX_MIB = 60


# A forked process counts its parent's memory into its own peak, so the parent is small.
MEASURE = """
import os, sys
child = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ, file_actions=[
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def cost(*arguments: str) -> tuple[int, float]:
    """Imported modules and peak MiB."""
    command = [sys.executable, "-I", "-S", "-c", MEASURE, "-X", "importtime", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    code, peak = done.stdout.split()
    assert code == "0", done.stderr
    return done.stderr.count("import time:"), int(peak) / 1024


@pytest.fixture(scope="module")
def bare() -> int:
    return cost("-c", "pass")[0]


@pytest.mark.parametrize("subcommand", [None, *(name for _, name in COMMANDS)])
def test_help_imports_little_and_is_small(bare: int, subcommand: str | None) -> None:
    words = [] if subcommand is None else [subcommand]
    modules, peak = cost("-m", "msprobe_client", *words, "--help")
    print(f"{' '.join(words)} --help: {modules - bare} modules, {peak:.0f} MiB")
    assert modules - bare < (MAX_MODULES if subcommand is None else MAX_MODULES_OF_SUBCOMMAND)
    assert peak < MAX_MIB


@pytest.mark.parametrize("arguments", [["-h"], ["compare", "-h"], ["-f", "pytorch", "compare", "-h"]])
def test_help_of_the_old_command_imports_little_and_is_small(bare: int, arguments: list[str]) -> None:
    modules, peak = cost("-c", f"from msprobe_client.compat.legacy import main; main({arguments!r})")
    assert modules - bare < MAX_MODULES
    assert peak < MAX_MIB


@pytest.mark.parametrize("module", ["commands", "compat.legacy"])
def test_help_imports_nothing_heavy(module: str) -> None:
    program = (
        "import sys\n"
        f"from msprobe_client.{module} import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "loaded: []"
    for _, subcommand in COMMANDS:
        assert f"\n  {subcommand} " in result.stdout


def test_the_package_imports_nothing_until_asked() -> None:
    program = f"import sys, msprobe_client; print([name for name in {HEAVY!r} if name in sys.modules])"
    program += "; msprobe_client.Client; print('grpc' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert result.stdout.split("\n")[:2] == ["[]", "True"]


def test_the_generated_modules_leave_the_name_msprobe_to_the_agent() -> None:
    program = (
        "import sys; from msprobe_client.proto import query_pb2 as q, query_pb2_grpc, control_pb2_grpc\n"
        "print('msprobe' in sys.modules, q.DESCRIPTOR.name, q.RunSummary.DESCRIPTOR.full_name, q.RunSummary.__module__)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert result.stdout.split() == [
        "False",
        "msprobe/v1/query.proto",
        "msprobe.v1.RunSummary",
        "msprobe_client.proto.query_pb2",
    ]


def test_a_subcommands_help_does_without_grpc() -> None:
    program = (
        "import sys\nfrom msprobe_client.commands import main\n"
        "try:\n    main(['records', '--help'])\n"
        "except SystemExit: pass\n"
        "print('loaded:', [name for name in ('grpc', 'google.protobuf', 'rich') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "loaded: []"

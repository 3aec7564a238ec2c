"""Asking for help must not cost what work costs."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from msprobe_client.commands import COMMANDS

HEAVY = ("grpc", "google.protobuf", "rich", "pydantic", "asyncio")
# Times a bare Python's start: 6 is usual. A subcommand's help takes 20, since typer loads pydantic to read its options.
MOST = 15
MOST_OF_SUBCOMMAND = 50


def seconds(*arguments: str) -> float:
    """The best of several starts: the machine may be busy."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, timeout=60)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize(
    ("subcommand", "most"), [([], MOST), (["records"], MOST_OF_SUBCOMMAND), (["export"], MOST_OF_SUBCOMMAND)]
)
def test_help_is_quick(subcommand: list[str], most: float) -> None:
    bare = seconds("-c", "pass")
    ours = seconds("-m", "msprobe_client", *subcommand, "--help")
    print(
        f"--help {' '.join(subcommand)}: {ours * 1e3:.0f} ms, {ours / bare:.1f} times a bare Python's {bare * 1e3:.0f}"
    )
    assert ours / bare < most


@pytest.mark.parametrize("module", ["commands", "legacy"])
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

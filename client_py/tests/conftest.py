"""Fixtures: a server in this process that answers what a test told it, and the command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_server import FakeServer

TESTS = Path(__file__).parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def strict(text: str) -> Any:
    def refuse(token: str) -> Any:
        raise ValueError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def rows(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The rows of a --format json answer."""
    found: list[dict[str, Any]] = strict(result.stdout)["rows"]
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with FakeServer(f"unix:{tmp_path}/s") as fake:
        yield fake


@pytest.fixture
def run_client() -> Run:
    """msprobe-client with these arguments, in a process of its own; no server in its environment."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("MSPROBE_")}
        return subprocess.run(
            [sys.executable, "-m", "msprobe_client", *map(str, arguments)],
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def fake_binary(tmp_path: Path) -> Path:
    """A program that takes msprobe-server's flags and serves the fake; writes its process id to data_dir."""
    path = tmp_path / "fake-msprobe-server"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "fake_server.py"} "$@"\n')
    path.chmod(0o755)
    return path

"""msprobe-client doctor names each fault, with what to do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from conftest import Run, rows
from fake_server import FakeServer

from msprobe_client.proto import control_pb2


def findings(result: Any) -> dict[str, dict[str, str]]:
    assert result.stderr == "", result.stderr
    return {row["check"]: row for row in rows(result)}


def doctor(run_client: Run, *arguments: object, code: int = 0, **environment: str) -> dict[str, dict[str, str]]:
    result = run_client("doctor", "--format", "json", *arguments, **environment)
    assert result.returncode == code, result.stdout + result.stderr
    return findings(result)


def answer(server: FakeServer, **fields: Any) -> None:
    server.tells_time = "now_unix_us" not in fields
    fields = {"version": "0.1.0", "disk_free_bytes": 5 << 30, **fields}
    server.info = control_pb2.ServerInfo(server_id="abc", data_dir="/data", **fields)


def test_all_is_well(server: FakeServer, run_client: Run) -> None:
    answer(server, open_sessions=2)
    found = doctor(run_client, "--server", server.address)
    assert [row for row in found.values() if row["state"] != "ok"] == []
    assert found["disk"]["found"] == "5.0 GiB free at /data"
    assert found["sessions"]["found"] == "2 open"
    assert doctor(run_client, MSPROBE_SERVER=server.address)["address"]["state"] == "ok"


def test_a_table_is_for_people(server: FakeServer, run_client: Run) -> None:
    answer(server)
    result = run_client("doctor", "--server", server.address)
    assert result.stdout.splitlines()[0].split("  ")[0] == "CHECK"
    assert f"MSPROBE_SERVER={server.address}" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("fields", "check", "state", "words"),
    [
        ({"version": "0.9.3"}, "version", "warning", ("0.9.3", "update the older")),
        ({"now_unix_us": 1}, "clock", "warning", ("behind", "NTP")),
        ({"disk_free_bytes": 1 << 20}, "disk", "warning", ("0.0 GiB", "retain_days")),
        ({"refusing": "3 MiB are free, 64 are needed"}, "disk", "fails", ("3 MiB are free", "delete runs")),
        ({"now_unix_us": 0, "disk_free_bytes": 0}, "clock", "ok", ("does not tell",)),
    ],
)
def test_what_the_server_says(
    server: FakeServer, run_client: Run, fields: dict[str, Any], check: str, state: str, words: tuple[str, ...]
) -> None:
    answer(server, **fields)
    row = doctor(run_client, "--server", server.address, code=1 if state == "fails" else 0)[check]
    assert row["state"] == state
    for word in words:
        assert word in f"{row['found']} {row['do']}"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("unix:/nowhere/s", ("/nowhere/s does not exist", "--listen")),
        ("localhost", ("is not understood", "host:port")),
        ("no-such-host.invalid:50051", ("the name is not known", "DNS")),
    ],
)
def test_a_server_that_is_not_there(run_client: Run, address: str, words: tuple[str, ...]) -> None:
    found = doctor(run_client, "--server", address, code=1)
    assert found["address"]["state"] == "fails" and "version" not in found
    for word in words:
        assert word in f"{found['address']['found']} {found['address']['do']}"


def test_a_port_where_nobody_listens(run_client: Run) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        row = doctor(run_client, "--server", f"127.0.0.1:{held.getsockname()[1]}", code=1)["address"]
    assert row["found"].endswith("refuses connections")


def test_a_token_that_is_missing(server: FakeServer, run_client: Run) -> None:
    server.fail = (grpc.StatusCode.UNAUTHENTICATED, "no token")
    row = doctor(run_client, "--server", server.address, code=1)["token"]
    assert row["state"] == "fails" and "--token_file" in row["do"]


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("__version__ = '2.1.0'", ("but torch 2.1.0 is installed", "install the msprobe-agent built for torch 2.1")),
        ("raise ImportError('libcudart.so is not there')", ("libcudart.so is not there",)),
        ("import no_such_module", ("No module named 'no_such_module'",)),
    ],
)
def test_the_agent_is_said_to_work_where_its_import_does(
    tmp_path: Path, run_client: Run, server: FakeServer, package: str, words: tuple[str, ...]
) -> None:
    pytest.importorskip("msprobe", reason="msprobe-agent is not in this environment")
    answer(server)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(package)
    imported = subprocess.run(
        [sys.executable, "-c", "import msprobe.pytorch"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert imported.returncode == 1
    row = doctor(run_client, "--server", server.address, code=1, PYTHONPATH=str(tmp_path))["agent"]
    assert row["state"] == "fails"
    said = imported.stderr.splitlines()[-1].partition(": ")[2]
    assert said.partition("; ")[0] in row["found"], (said, row)
    for each in words:
        assert each in row["found"] + row["do"] and each in imported.stderr


def test_without_a_server_the_own_one_is_looked_for(run_client: Run, fake_binary: Path) -> None:
    missing = doctor(run_client, code=1, MSPROBE_SERVER_BINARY="/nowhere")["server"]
    assert "/nowhere" in missing["found"] and missing["state"] == "fails"


def test_where_an_agent_would_write(tmp_path: Path, run_client: Run, server: FakeServer) -> None:
    answer(server)
    (tmp_path / "file").write_text("")
    good = doctor(run_client, "--server", server.address, "--dump_path", tmp_path / "a" / "b")
    assert good["dump_path"]["state"] == "ok"
    bad = doctor(run_client, "--server", server.address, "--dump_path", tmp_path / "file", code=1)
    assert "is a file" in bad["dump_path"]["found"]
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        assert doctor(run_client, "--server", server.address, "--dump_path", locked, code=1)

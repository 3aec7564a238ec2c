"""--data_dir: a server for the length of one command. The program is the fake with msprobe-server's flags."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Run

from msprobe_client import Client, InvalidArgument, ServerUnavailable
from msprobe_client.embedded import EmbeddedServer


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def running(process_id: int) -> bool:
    """Unlike alive(), false of one that has ended and that its parent, a stranger, has not asked about yet."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def store_in(data_dir: Path, made: float = 1e9) -> Path:
    """The files by which the client knows a store, and how old it is."""
    (data_dir / "store").mkdir(parents=True)
    for name in ("CURRENT", "IDENTITY"):
        (data_dir / "store" / name).touch()
    os.utime(data_dir / "store" / "IDENTITY", (made, made))
    return data_dir


@pytest.fixture
def data_dir(tmp_path: Path, fake_binary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MSPROBE_SERVER_BINARY", str(fake_binary))
    return store_in(tmp_path / "store")


def test_a_command_starts_a_server_and_ends_it_in_order(run_client: Run, data_dir: Path, fake_binary: Path) -> None:
    result = run_client("runs", "--data_dir", data_dir, "--format", "csv", MSPROBE_SERVER_BINARY=str(fake_binary))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1].startswith("training,")
    assert (data_dir / "drained").exists()
    assert not alive(int((data_dir / "pid").read_text()))


def test_the_socket_is_private_and_gone_afterwards(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server:
        runtime = Path(server.address.removeprefix("unix:")).parent
        assert runtime.stat().st_mode & 0o777 == 0o700
    assert not runtime.exists()


def test_what_a_killed_program_left_goes_with_the_next_start(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    program = (
        "import os, signal; from msprobe_client.embedded import EmbeddedServer\n"
        f"with EmbeddedServer({str(data_dir)!r}) as server:\n"
        "    print(server.process_id, server.address, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    server, address = killed.stdout.split()
    os.kill(int(server), signal.SIGTERM)  # it would leave by itself, after a minute
    left = Path(address.removeprefix("unix:")).parent
    deadline = time.monotonic() + 60
    while running(int(server)):  # it takes its socket along, which makes the directory young again
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert left.is_dir()
    os.utime(left, (0, 0))
    with EmbeddedServer(data_dir) as other:
        assert not left.exists()
        assert Path(other.address.removeprefix("unix:")).parent.parent == tmp_path


def test_a_long_temporary_directory_does_not_make_the_socket_too_long(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with Client(data_dir=data_dir) as client:
        assert len(client.runs()) == 1


def test_a_failure_inside_the_context_ends_the_server(data_dir: Path) -> None:
    with pytest.raises(RuntimeError), Client(data_dir=data_dir):
        raise RuntimeError
    assert not alive(int((data_dir / "pid").read_text()))


def test_ctrl_c_ends_the_server_in_order(data_dir: Path) -> None:
    program = (
        "import time; from msprobe_client import Client\n"
        f"with Client(data_dir={str(data_dir)!r}):\n"
        "    print('up', flush=True)\n"
        "    while True: time.sleep(0.1)"  # a signal just before one long sleep would wait for its end
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)
    assert (data_dir / "drained").exists()
    assert not alive(int((data_dir / "pid").read_text()))


def test_a_directory_that_another_server_has(data_dir: Path) -> None:
    (data_dir / "locked").touch()
    with pytest.raises(ServerUnavailable, match=r"in use by another server.*--server"):
        Client(data_dir=data_dir)


def test_a_copied_directory_is_not_that_of_the_server_that_it_names(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "running"
    with socket.socket(socket.AF_UNIX) as listener, (data_dir / "msprobe-server.lock").open("w"):
        listener.bind(str(path))
        listener.listen()
        (data_dir / "server.json").write_text(json.dumps({"address": f"unix:{path}", "pid": os.getpid()}))
        with EmbeddedServer(data_dir) as server:
            assert server.address == f"unix:{path}"
        with EmbeddedServer(shutil.copytree(data_dir, tmp_path / "copy")) as server:
            assert server.address != f"unix:{path}"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "content",
    [
        None,
        "[" * 60_000,
        " " * 10_000_000,
        '{"pid": "x", "address": 3}',
        '{"pid": 1e400, "address": "unix:/x"}',
        "{}",
        "\0",
    ],
)
def test_a_directory_whose_server_json_is_none_has_a_server_of_its_own(content: str | None, data_dir: Path) -> None:
    if content is None:
        os.mkfifo(data_dir / "server.json")
    else:
        (data_dir / "server.json").write_text(content)
    with EmbeddedServer(data_dir) as server:
        assert server.process_id is not None


def test_a_directory_that_does_not_exist_is_made_for_import_only(
    run_client: Run, data_dir: Path, fake_binary: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(InvalidArgument, match="missing does not exist"):
        Client(data_dir=missing)
    assert not missing.exists()
    dump = tmp_path / "dump" / "step0" / "rank0"
    dump.mkdir(parents=True)
    arguments = ["import", tmp_path / "dump", "--run", "r", "--data_dir", missing]
    environment = {"MSPROBE_SERVER_BINARY": str(fake_binary)}
    result = run_client(*arguments, **environment)
    assert result.returncode == 3 and "holds no dump" in result.stderr and not missing.exists()
    (dump / "dump.json").write_text("{}")
    assert run_client(*arguments, **environment).returncode == 0
    assert missing.is_dir()


def test_a_dump_path_means_the_one_data_directory_below_it(data_dir: Path, tmp_path: Path) -> None:
    dump_path = tmp_path / "dump"
    embedded = store_in(dump_path / ".msprobe" / "0-1")
    (dump_path / ".msprobe" / "spool").mkdir()  # there while the program runs
    for given in (dump_path, dump_path / ".msprobe", embedded):
        with Client(data_dir=given) as client:
            assert len(client.runs()) == 1
        (embedded / "drained").unlink()
    assert sorted(path.name for path in dump_path.rglob("*") if path.is_dir()) == [".msprobe", "0-1", "spool", "store"]


def test_of_several_below_it_one_has_to_be_given(data_dir: Path, tmp_path: Path) -> None:
    embedded = tmp_path / "my dump" / ".msprobe"
    old, newest = store_in(embedded / "b", made=1e9), store_in(embedded / "a", made=2e9)
    os.utime(old / "store" / "CURRENT", (3e9, 3e9))  # somebody has read it since
    for given in (embedded.parent, embedded):
        said = f"{given} has 2 data directories below it; give one of them, the newest is the last: '{old}' '{newest}'"
        with pytest.raises(InvalidArgument, match=f"^{re.escape(said)}$"):
            Client(data_dir=given)


@pytest.mark.parametrize("given", ["dump", "dump/.msprobe", "dump/.msprobe/0-1", "dump/step0", "data/store"])
def test_a_reader_makes_no_store(run_client: Run, fake_binary: Path, tmp_path: Path, given: str) -> None:
    for directory in ("dump/.msprobe/0-1", "dump/.msprobe/spool", "dump/step0/rank0"):
        (tmp_path / directory).mkdir(parents=True)
    store_in(tmp_path / "data")
    before = sorted(tmp_path.rglob("*"))
    where = ["--data_dir", tmp_path / given]
    result = run_client("runs", *where, MSPROBE_SERVER_BINARY=str(fake_binary))
    said = f"data directory {tmp_path / given} holds no store; give the data_dir of a msprobe-server, or the dump_path"
    assert result.returncode == 3 and said in result.stderr and result.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_create_makes_the_store_in_an_empty_directory(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with Client(data_dir=tmp_path / "empty", create=True) as client:
        assert len(client.runs()) == 1


def test_a_dump_path_in_place_of_a_run_is_told(run_client: Run, tmp_path: Path) -> None:
    store_in(tmp_path / "my dump" / ".msprobe" / "0-1")
    for command in (["series"], ["export", "-o", tmp_path / "out"], ["rules"]):
        result = run_client(*command, tmp_path / "my dump")
        said = " ".join(result.stderr.replace("│", " ").split())
        where = f"--data_dir '{tmp_path}/my dump'"
        assert result.returncode == 2 and "is a dump_path, not the name of a run" in said
        assert f"`msprobe-client runs {where}`" in said
    assert "no server: give --server ADDRESS" in run_client("series", tmp_path).stderr


@pytest.mark.parametrize("binary", ["/nonexistent/server", "/tmp"])
def test_a_binary_that_is_none(data_dir: Path, binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_SERVER_BINARY", binary)
    with pytest.raises(ServerUnavailable, match="MSPROBE_SERVER_BINARY"):
        Client(data_dir=data_dir)


def test_a_binary_that_dies_says_its_last_words(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = tmp_path / "dies"
    binary.write_text("#!/bin/sh\necho storage format 9 is newer than this server >&2\nexit 1\n")
    binary.chmod(0o755)
    monkeypatch.setenv("MSPROBE_SERVER_BINARY", str(binary))
    with pytest.raises(ServerUnavailable, match=r"exit code 1.*storage format 9"):
        Client(data_dir=data_dir)

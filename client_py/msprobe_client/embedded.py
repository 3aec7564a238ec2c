"""A msprobe-server of one's own on a data directory, as long as one needs it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from msprobe_client.address import UNIX_PATH_MAX
from msprobe_client.errors import InvalidArgument, ServerUnavailable
from msprobe_client.given_file import json_of
from msprobe_client.scratch import scratch_directory

ENVIRONMENT = "MSPROBE_SERVER_BINARY"
# Opening a store after a crash replays its log; a minute is far beyond what was ever seen.
START_SECONDS = 60.0
STOP_SECONDS = 30.0
# Of a socket whose queue is full.
CONNECT_SECONDS = 5.0
# Should this process be killed, the server leaves by itself.
IDLE_EXIT_SECONDS = 60
_MOST_BYTES = 65536  # of server.json
# Of the directory with the server's socket and log. Not "msprobe-": agents keep /tmp/msprobe-UID.
PREFIX = "msprobe-server-"


def server_binary() -> Path:
    """$MSPROBE_SERVER_BINARY, else beside this Python, else in PATH."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        path = Path(named)
        if not os.access(path, os.X_OK) or path.is_dir():
            raise ServerUnavailable(f"{ENVIRONMENT}={named} is not a program; name the msprobe-server binary")
        return path
    beside = Path(sys.executable).parent / "msprobe-server"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("msprobe-server")
    if found is None:
        raise ServerUnavailable(
            f"msprobe-server was not found beside {sys.executable} nor in PATH; install it, or set {ENVIRONMENT}, "
            "or give --server ADDRESS of a running one"
        )
    return Path(found)


class EmbeddedServer:
    """Runs msprobe-server on a private socket. Use as a context; `address` is valid inside it.

    The server takes the lock on the directory; if another holds it, entering raises ServerUnavailable. The server of a
    program that captures into its dump_path has said where it listens: while it runs, `address` is its own.

    data_dir: a data directory, or a dump_path with one data directory below it. create: a data directory that is made
    where it is missing; without it nothing is ever made, and a directory without a store is InvalidArgument.
    """

    def __init__(self, data_dir: str | os.PathLike[str], *, create: bool = False) -> None:
        self._data_dir = Path(data_dir)
        self._create = create
        self._process: subprocess.Popen[bytes] | None = None
        self._runtime: Path | None = None
        self._held = ExitStack()  # the directory, as long as the server runs
        self.address = ""

    def __enter__(self) -> EmbeddedServer:
        if not self._data_dir.is_dir():
            if self._data_dir.exists():
                raise InvalidArgument(f"data directory {self._data_dir} is not a directory")
            if not self._create:
                raise InvalidArgument(f"data directory {self._data_dir} does not exist; nothing is stored there")
            try:
                self._data_dir.mkdir(mode=0o700, parents=True)
            except OSError as error:
                raise InvalidArgument(f"data directory {self._data_dir} cannot be created: {error.strerror}") from None
        elif not self._create:
            self._data_dir = _data_directory(self._data_dir)
        if running := self._advertised():
            self.address = running
            return self
        binary = server_binary()
        self._runtime = Path(self._held.enter_context(scratch_directory(PREFIX, _runtime_parent())))
        path = self._runtime / "server"
        self.address = f"unix:{path}"
        try:
            self._start(binary, path)
        except BaseException:
            self._stop()
            raise
        return self

    def _advertised(self) -> str | None:
        """The address that the directory's server has written beside the store, if it has the directory and answers."""
        try:
            said = json_of(self._data_dir / "server.json", most=_MOST_BYTES)
            # A copy of the directory names the server of the original.
            is_held = _has_open(int(said["pid"]), self._data_dir / "msprobe-server.lock")
            address = str(said["address"])
            return address if is_held and _accepts(Path(address.removeprefix("unix:"))) else None
        except (InvalidArgument, OSError, ValueError, OverflowError, LookupError, TypeError):
            return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _start(self, binary: Path, path: Path) -> None:
        assert self._runtime is not None
        command = [
            str(binary),
            f"--data_dir={self._data_dir.resolve()}",
            f"--listen=unix:{path}",
            "--embedded",
            f"--idle_exit_seconds={IDLE_EXIT_SECONDS}",
        ]
        with (self._runtime / "log").open("wb") as log:
            # A session of its own: Ctrl-C at the terminal is ours to handle, the server is ended in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not _accepts(path):
            code = self._process.poll()
            if code is not None:
                raise ServerUnavailable(
                    f"msprobe-server on {self._data_dir} ended with {_how(code)} before it listened"
                    f"{self._last_words()}; if another server has that directory, give its address with --server"
                )
            if time.monotonic() > deadline:
                raise ServerUnavailable(
                    f"msprobe-server on {self._data_dir} did not listen within {START_SECONDS:.0f} s"
                    f"{self._last_words()}"
                )
            time.sleep(0.01)

    def _last_words(self) -> str:
        assert self._runtime is not None
        lines = (self._runtime / "log").read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last[-500:]}" if last else ""

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            except KeyboardInterrupt:
                self._process.kill()
                self._process.wait()
                raise
        self._process = None
        self._runtime = None
        self._held.close()


def data_directories(dump_path: Path) -> list[Path]:
    """Of the embedded servers of a dump_path, or of its .msprobe; the store that was made last is the last one's."""
    parent = dump_path if dump_path.resolve().name == ".msprobe" else dump_path / ".msprobe"
    found = filter(_has_store, parent.iterdir()) if parent.is_dir() else ()
    return sorted(found, key=_made)


def _made(data_dir: Path) -> float:
    """When the store was made: RocksDB writes IDENTITY once. A restored backup lacks it until a server opens it."""
    identity = data_dir / "store" / "IDENTITY"
    return (identity if identity.exists() else identity.parent).stat().st_mtime


def _has_store(data_dir: Path) -> bool:
    """Every store has this file, and RocksDB makes a new store where it is missing."""
    return (data_dir / "store" / "CURRENT").exists()


def _data_directory(given: Path) -> Path:
    """The given one, else the one below it."""
    try:
        below = [given] if _has_store(given) else data_directories(given)
    except OSError as error:
        raise InvalidArgument(f"data directory {given} cannot be read: {error.strerror}") from None
    if not below:
        raise InvalidArgument(
            f"data directory {given} holds no store; give the data_dir of a msprobe-server, "
            "or the dump_path of a program that captured without one"
        )
    if len(below) > 1:
        raise InvalidArgument(
            f"{given} has {len(below)} data directories below it; give one of them, the newest is the last: "
            + shlex.join(map(str, below))
        )
    return below[0]


def _runtime_parent() -> str:
    """For a private directory that is short: a socket's path must fit."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if parent and len(parent) + 32 < UNIX_PATH_MAX and os.access(parent, os.W_OK):
            return parent
    raise ServerUnavailable("no writable directory for a socket in XDG_RUNTIME_DIR, TMPDIR or /tmp")


def _has_open(process: int, file: Path) -> bool:
    held = file.stat()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed just now
            if os.path.samestat(descriptor.stat(), held):
                return True
    return False


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"

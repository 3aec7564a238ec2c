"""Checks what a working server needs, one thing after another, and says what to do about each failure."""

from __future__ import annotations

import importlib.metadata
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_client import __version__
from msprobe_client.address import target_of
from msprobe_client.errors import AccessDenied, MsprobeError

if TYPE_CHECKING:
    from msprobe_client.access import Access
    from msprobe_client.model import ServerInfo

OK, WARNING, FAILS = "ok", "warning", "fails"

_CONNECT_SECONDS = 5.0
_IMPORT_SECONDS = 120.0  # of torch, from a slow disk
# Records carry the clocks of their machines; runs are named and kept by them.
_CLOCK_SECONDS = 5.0
_DISK_BYTES = 1 << 30

_LISTENS = "is the server running, and is this its --listen?"
_FIREWALL = "look for a firewall or a network policy between here and there"
_OTHER_USER = "start the server with --socket_mode=660, or as this user"
_TOKEN = "show a token of the role read: --token_file or MSPROBE_SERVER_TOKEN_FILE"
_ANEW = "install torch and msprobe-agent anew"
_ROOM = "free space, delete runs, or set --retain_days"


@dataclass(frozen=True)
class Finding:
    check: str
    state: str
    found: str
    do: str = ""


def examine(address: str | None, access: Access) -> Iterator[Finding]:
    """Ends early where later checks need an earlier one. address None: agents start servers of their own."""
    yield from _environment()
    if address is None:
        yield _own_server()
        return
    reached = _reachable(address)
    yield reached
    if reached.state == FAILS:
        return
    try:
        access = access.resolved()
    except MsprobeError as error:
        yield Finding("access", FAILS, str(error), "see docs/security.md for the options and variables")
        return
    yield from _server(address, access)


def _environment() -> Iterator[Finding]:
    yield Finding("client", OK, f"msprobe-client {__version__}, Python {sys.version.split()[0]}")
    agent = _version("msprobe-agent")
    if not agent:
        yield Finding("agent", OK, "msprobe-agent is not in this environment; it belongs into the traced program's")
        return
    works, said = _import_agent()
    if not works:
        found, _, do = said.partition("; ")
        yield Finding("agent", FAILS, f"msprobe-agent {agent} cannot be imported: {found}", do or _ANEW)
    elif not _same_release(agent, __version__):
        do = f"install msprobe-agent {__version__}, or this client's version of the agent's"
        yield Finding("agent", WARNING, f"msprobe-agent {agent} beside msprobe-client {__version__}", do)
    else:
        yield Finding("agent", OK, f"msprobe-agent {agent}, {said}")


def _import_agent() -> tuple[bool, str]:
    """Whether this Python can import the agent, and its versions. The import itself decides."""
    command = [sys.executable, "-m", "msprobe._check"]
    safe = {**os.environ, "PYTHONSAFEPATH": "1"}  # this directory may hide the installed package
    try:
        done = subprocess.run(command, env=safe, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    lines = (done.stdout if done.returncode in (0, 1) and done.stdout.strip() else done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else f"Python ends with {done.returncode}"


def _own_server() -> Finding:
    from msprobe_client.embedded import server_binary

    try:
        binary = server_binary()
        said = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (MsprobeError, OSError, subprocess.TimeoutExpired) as error:
        return Finding("server", FAILS, str(error), "install msprobe-server, or name a server with --server ADDRESS")
    if said.returncode != 0:
        return Finding("server", FAILS, f"{binary} ends with {said.returncode}", "install msprobe-server anew")
    do = "name a server that stays with --server ADDRESS or MSPROBE_SERVER, if there is one"
    return Finding("server", OK, f"none is named; agents start {said.stdout.strip()} ({binary})", do)


def _reachable(address: str) -> Finding:
    try:
        target = target_of(address)
    except MsprobeError as error:
        return Finding("address", FAILS, str(error), "correct --server or MSPROBE_SERVER")
    path = target.removeprefix("unix:") if target.startswith("unix:") else ""
    began = time.monotonic()
    try:
        if path:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_CONNECT_SECONDS)
                connection.connect(path)
        else:
            host, _, port = target.rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
                pass
    except socket.gaierror as error:
        return Finding(
            "address", FAILS, f"{address}: the name is not known ({error.strerror})", "check the host's name and DNS"
        )
    except FileNotFoundError:
        return Finding("address", FAILS, f"{path} does not exist", _LISTENS)
    except PermissionError:
        return Finding("address", FAILS, f"{path} is not for this user", _OTHER_USER)
    except ConnectionRefusedError:
        return Finding("address", FAILS, f"{address} refuses connections", _LISTENS)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else str(error.strerror or error)
        return Finding("address", FAILS, f"{address}: {reason}", _FIREWALL)
    return Finding("address", OK, f"{address} answers in {1000 * (time.monotonic() - began):.0f} ms")


def _server(address: str, access: Access) -> Iterator[Finding]:
    from msprobe_client.client import Client

    began = time.time()
    try:
        with Client(address, access=access) as client:
            info = client.server_info()
    except AccessDenied as error:
        yield Finding("token", FAILS, str(error), _TOKEN)
        return
    except MsprobeError as error:
        do = "is it TLS? then give --ca" if access.ca is None else "is it TLS, of this authority, and for this name?"
        yield Finding("server", FAILS, str(error), f"{do}; the server's log says more")
        return
    yield Finding(
        "token", OK, "the server asks for none" if access.token_file is None else f"{access.token_file} is taken"
    )
    same = _same_release(info.version, __version__)
    do = "" if same else "they understand each other; update the older one when you can"
    found = f"msprobe-server {info.version}, up since {info.started.astimezone():%Y-%m-%d %H:%M}"
    yield Finding("version", OK if same else WARNING, found, do)
    yield _clock(info, (began + time.time()) / 2)
    yield _disk(info)
    sessions = "no program streams to it now" if info.open_sessions == 0 else f"{info.open_sessions} open"
    do = f"set MSPROBE_SERVER={address} where the program runs" if info.open_sessions == 0 else ""
    yield Finding("sessions", OK, sessions, do)


def _clock(info: ServerInfo, here: float) -> Finding:
    if info.now is None:
        return Finding("clock", OK, "the server does not tell its time")
    ahead = (info.now - datetime.fromtimestamp(here, timezone.utc)).total_seconds()
    if abs(ahead) <= _CLOCK_SECONDS:
        return Finding("clock", OK, f"{abs(ahead):.1f} s apart")
    found = f"the server's is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    return Finding("clock", WARNING, found, "set both by NTP: times of runs and their age are compared")


def _disk(info: ServerInfo) -> Finding:
    if info.refusing:
        return Finding("disk", FAILS, info.refusing, f"{_ROOM}; agents spool meanwhile")
    if info.disk_free_bytes is None:
        return Finding("disk", OK, "the server does not tell its room")
    found = f"{info.disk_free_bytes / (1 << 30):.1f} GiB free at {info.data_dir}"
    if info.disk_free_bytes < _DISK_BYTES:
        return Finding("disk", WARNING, found, _ROOM)
    return Finding("disk", OK, found)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _same_release(one: str, other: str) -> bool:
    return one.split(".")[:2] == other.split(".")[:2]


def dump_directory(path: Path) -> Finding:
    """Whether an agent could write its dump there."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        return Finding("dump_path", FAILS, f"{existing} is a file", "name a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("dump_path", FAILS, f"{existing} cannot be written by this user", "choose another")
    return Finding("dump_path", OK, f"{path} can be written")

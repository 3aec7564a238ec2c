"""Sends the sessions of killed processes: msprobe-server does it, and this reads its lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from msprobe_client.access import Access
from msprobe_client.errors import InvalidArgument, ServerUnavailable

SENT, NOTHING, IN_USE, KEPT = "sent", "nothing", "in use", "kept"

# How long a session waits without progress.
SECONDS = 30.0


@dataclass(frozen=True)
class Recovered:
    """One session, and its end. state: SENT; NOTHING: its server had all of it; IN_USE: its process lives, or somebody
    else sends it; KEPT: it stays as it is, for the reason `why`. records: calls that had not been put into a batch,
    beginnings and ends.
    """

    session: str
    run: str
    rank: str
    process_id: int
    host: str
    state: str
    bytes: int
    records: int
    batches: int
    payloads: int
    server: str
    why: str


def recover(
    path: str | os.PathLike[str], *, to: str | None = None, seconds: float = SECONDS, access: Access | None = None
) -> Iterator[Recovered]:
    """Sends the sessions left in path (a dump_path, a directory of sessions' memory or spools, or one of them). to: a
    server's address in place of the one that each process had named, with `access`. InvalidArgument: the path does not
    exist, or the address is wrong.
    """
    import json  # here: the command's --help names this module
    import subprocess

    from msprobe_client.embedded import server_binary

    command = [str(server_binary()), f"--recover={Path(path)}", f"--recover_seconds={seconds}"]
    environment = dict(os.environ)
    if to is not None:
        command.append(f"--recover_to={to}")
        given = (access or Access()).resolved()
        for name, value in vars(given).items():
            environment[f"MSPROBE_SERVER_{name.upper()}"] = value or ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        known = {field.name for field in fields(Recovered)}
        for line in process.stdout:
            yield Recovered(**{name: value for name, value in json.loads(line).items() if name in known})
        said = process.stderr.read().strip()
        code = process.wait()
    if code == 2:
        raise InvalidArgument(said.removeprefix("msprobe-server: "))
    if code not in (0, 1):
        raise ServerUnavailable(f"{command[0]} ended with {code}: {said[-500:]}")

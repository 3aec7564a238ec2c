"""Calls of a dump.json checked by several processes. One that dies costs its call, and another takes its place."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from multiprocessing.connection import Connection, wait
from pathlib import Path

from msprobe_client.compat.accuracy_tables import ERROR, CallRows
from msprobe_client.compat.replayed_calls import Choice, Source, skipped_call
from msprobe_client.errors import MsprobeError

# gRPC does not outlive a fork.
_SPAWN = multiprocessing.get_context("spawn")


def checked_by_processes(
    address: str,
    source: Source,
    names: Sequence[str],
    choice: Choice,
    *,
    devices: Sequence[str],
    processes: int,
    error_folder: Path | None,
) -> Iterator[CallRows]:
    """The rows of each call, in the order of names. Processes take the devices in turn."""
    waiting = deque(names)
    ready: dict[str, CallRows] = {}
    next_device = cycle(devices)
    shown = deque(names)

    def started() -> _Process:
        return _Process(address, replace(source, device=next(next_device)), choice, error_folder)

    workers = [started() for _ in range(min(processes, len(names)))]
    try:
        for worker in workers:
            worker.take(waiting.popleft())
        while shown:
            busy = [worker.connection for worker in workers if worker.name]
            for connection in wait(busy):
                at = next(i for i, worker in enumerate(workers) if worker.connection is connection)
                name = workers[at].name
                ready[name] = workers[at].answer()
                if not workers[at].alive:
                    workers[at] = started()
                if waiting:
                    workers[at].take(waiting.popleft())
            while shown and shown[0] in ready:
                yield ready.pop(shown.popleft())
    finally:
        for worker in workers:
            worker.end()


class _Process:
    """Checks one call at a time; name: which, or empty."""

    def __init__(self, address: str, source: Source, choice: Choice, error_folder: Path | None) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, address, source, choice, error_folder), daemon=True)
        self._process.start()
        theirs.close()
        self.name = ""
        self.alive = True

    def take(self, name: str) -> None:
        self.name = name
        with suppress(OSError):  # where it is dead, answer() says so
            self.connection.send(name)

    def answer(self) -> CallRows:
        name, self.name = self.name, ""
        try:
            answer: CallRows | MsprobeError = self.connection.recv()
        except (EOFError, OSError):
            self.alive = False
            self.end()
            return skipped_call(name, f"the process that ran it ended with {self._ending()}", ERROR)
        if isinstance(answer, MsprobeError):
            raise answer
        return answer

    def end(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()

    def _ending(self) -> str:
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _serve(connection: Connection, address: str, source: Source, choice: Choice, error_folder: Path | None) -> None:
    from msprobe_client.client import Client
    from msprobe_client.compat.acc_check_command import calls_of

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    try:
        with Client(address) as client, calls_of(client, source, error_folder) as calls:
            while True:
                connection.send(calls.rows(connection.recv(), choice))
    except MsprobeError as error:
        connection.send(error)
    except EOFError:
        pass

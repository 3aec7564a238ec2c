"""Keeps worker processes: starts another where one died, and gives its lease back with the item that it was running."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from msprobe_client.access import Access
from msprobe_client.client import Client
from msprobe_client.errors import MsprobeError, ServerError
from msprobe_client.jobs.running_note import RunningNote
from msprobe_client.jobs.worker_process import EXIT_USAGE, Settings, say

_LOOK_SECONDS = 0.05
# For an item that does not let go of its process.
_GRACE_SECONDS = 5.0
# A process that dies at once, and often, has something wrong with it that is no item's.
_EARLY_SECONDS = 5.0
_EARLY_DEATHS = 5


@dataclass
class _Child:
    settings: Settings
    process: subprocess.Popen[bytes]
    note: RunningNote
    started: float
    overdue: str = ""  # why it was killed
    had_work: bool = False  # when it died


class Supervisor:
    """processes: how many are kept. settings: of each; worker and note are this object's to fill in."""

    def __init__(self, settings: Settings, processes: int) -> None:
        self._settings = settings
        self._processes = processes
        self._scratch = tempfile.TemporaryDirectory(prefix="msprobe-worker-")
        self._client = Client(settings.address, access=Access(**settings.access))
        self._children: list[_Child] = []
        self._started = 0
        self._early_deaths = 0
        self._ending = threading.Event()

    def end(self) -> None:
        """Makes run() return soon. From any thread or signal handler."""
        self._ending.set()

    def run(self) -> None:
        """Until end(), or until every process has been idle for Settings.idle_exit. ServerError: none stays alive."""
        try:
            for _ in range(self._processes):
                self._start()
            while self._children and not self._ending.is_set():
                for child in list(self._children):
                    self._look_at(child)
                self._ending.wait(_LOOK_SECONDS)
        finally:
            self._end_all()
            self._client.close()
            self._scratch.cleanup()

    def _start(self) -> None:
        self._started += 1
        name = f"{socket.gethostname()}:{os.getpid()}.{self._started}"
        note = Path(self._scratch.name) / str(self._started)
        settings = replace(self._settings, worker=name, note=str(note))
        process = subprocess.Popen([sys.executable, "-m", "msprobe_client.jobs.worker_process"], stdin=subprocess.PIPE)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead already; it will be looked at
            process.stdin.write(json.dumps(settings.to_dict()).encode() + b"\n")
            process.stdin.flush()
        self._children.append(_Child(settings, process, RunningNote(note), time.monotonic()))

    def _look_at(self, child: _Child) -> None:
        code = child.process.poll()
        if code is None:
            now = child.note.read()
            if now.running and now.timeout and time.monotonic() - now.since > now.timeout and not child.overdue:
                child.overdue = f"ran longer than {now.timeout:g} s"
                child.process.kill()
            return
        self._children.remove(child)
        if code == 0:
            self._forget(child)
            return
        self._bury(child, child.overdue or death(code))
        if code == EXIT_USAGE:
            raise ServerError("a worker process could not begin; it has said why")
        early = time.monotonic() - child.started < _EARLY_SECONDS and not child.had_work
        self._early_deaths = self._early_deaths + 1 if early else 0
        if self._early_deaths >= _EARLY_DEATHS:
            raise ServerError(f"{_EARLY_DEATHS} worker processes died before they had work; the last one {death(code)}")
        self._start()

    def _bury(self, child: _Child, message: str) -> None:
        """Gives its lease back."""
        now = child.note.read()
        child.had_work = bool(now.lease)
        if now.lease:
            crashes = {now.item: message} if now.running else {}
            what = f"job {now.job}, item {now.item}" if now.running else "between items"
            say(f"{child.settings.worker}: {message} ({what})")
            # Where the server is away, the lease comes back when its time is over.
            with suppress(MsprobeError):
                self._client.jobs.give_back(now.lease, now.job, crashes, worker=child.settings.worker)
        else:
            say(f"{child.settings.worker}: {message}")
        self._forget(child)

    def _forget(self, child: _Child) -> None:
        child.note.close()
        if child.process.stdin is not None:
            with suppress(BrokenPipeError):
                child.process.stdin.close()

    def _end_all(self) -> None:
        for child in self._children:
            child.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _GRACE_SECONDS
        for child in self._children:
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
                self._forget(child)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
                now = child.note.read()
                if now.lease:
                    with suppress(MsprobeError):
                        self._client.jobs.give_back(now.lease, now.job, worker=child.settings.worker)
                self._forget(child)
        self._children = []


def death(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    return f"killed by signal {-code}{name}"

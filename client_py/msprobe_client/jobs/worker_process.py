"""A process that leases items and runs them, until it is told to end, or its supervisor is gone.

Started by Supervisor, which gives its Settings as a line of JSON on stdin. The end of stdin is the supervisor's death.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

from msprobe_client import jobs
from msprobe_client.access import Access
from msprobe_client.client import Client
from msprobe_client.errors import InvalidArgument, MsprobeError
from msprobe_client.jobs.running_note import Running, RunningNote
from msprobe_client.patience import patiently
from msprobe_client.proto import jobs_pb2

# Results wait so long for company; a death costs no more work than that.
FLUSH_SECONDS = 0.2
_WAIT_MS = 5000
_MAX_RESULT = 64 << 10
EXIT_USAGE = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a worker process is to do."""

    address: str
    worker: str  # its name
    note: str  # path of its RunningNote
    kinds: dict[str, str]  # module of each
    device: str = "cpu"
    batch: int = 32  # items a lease, at most
    lease_ms: int = 30_000
    idle_exit: float | None = None  # seconds without work after which it ends; None: never
    access: dict[str, Any] = field(default_factory=dict)  # fields of Access
    job: int = 0  # to work for alone; 0: for any

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class _EndNow(BaseException):
    """SIGTERM came."""


class WorkerProcess:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._functions = {kind: jobs.function(module) for kind, module in settings.kinds.items()}
        self._client = Client(settings.address, access=Access(**settings.access))
        self._note = RunningNote(Path(settings.note))
        self._lease: jobs_pb2.LeaseResponse | None = None
        self._gone = threading.Event()  # the lease is not ours any more
        self._ending = threading.Event()
        self._results: list[jobs_pb2.FinishRequest.Result] = []
        self._flushed = 0.0

    def run(self) -> None:
        threading.Thread(target=self._beat, daemon=True).start()
        idle_since = time.monotonic()
        try:
            while True:
                self._lease = None
                lease = self._patiently(self._take)
                if lease.lease:
                    self._work(lease)
                    idle_since = time.monotonic()
                    continue
                idle = time.monotonic() - idle_since
                if self._settings.idle_exit is not None and idle >= self._settings.idle_exit:
                    return
                time.sleep(lease.ask_again_ms / 1000 if lease.ask_again_ms > _WAIT_MS / 10 else 0.01)
        except _EndNow:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.give_back()

    def give_back(self) -> None:
        """Results that are there go to the server, then the lease."""
        self._ending.set()
        lease = self._lease
        if lease is None:
            return
        try:
            self._flush(lease)
            self._client.jobs.give_back(lease.lease, lease.job, worker=self._settings.worker)
        except MsprobeError:
            pass  # it comes back when its time is over
        self._note.write(Running())

    def _take(self) -> jobs_pb2.LeaseResponse:
        wait = _WAIT_MS
        if self._settings.idle_exit is not None:
            wait = min(wait, int(self._settings.idle_exit * 1000))
        return self._client.jobs.lease(
            self._settings.worker,
            list(self._settings.kinds),
            max_items=self._settings.batch,
            lease_ms=self._settings.lease_ms,
            wait_ms=wait,
            job=self._settings.job,
        )

    def _work(self, lease: jobs_pb2.LeaseResponse) -> None:
        self._gone.clear()
        self._lease = lease
        self._flushed = time.monotonic()
        timeout = lease.limits.item_timeout_ms / 1000
        for item in lease.items:
            if self._gone.is_set():
                break
            self._note.write(Running(lease.lease, lease.job, item.item, True, time.monotonic(), timeout))
            self._results.append(self._run(lease, item))
            self._note.write(Running(lease.lease, lease.job))
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._patiently(lambda: self._flush(lease))
        self._patiently(lambda: self._flush(lease))
        self._lease = None
        self._note.write(Running())

    def _run(self, lease: jobs_pb2.LeaseResponse, item: jobs_pb2.LeaseResponse.Item) -> jobs_pb2.FinishRequest.Result:
        work = jobs.Work(
            self._client,
            lease.run,
            lease.options,
            item.name,
            item.payload,
            self._settings.device,
            item.attempt,
            lease.job,
        )
        result = jobs_pb2.FinishRequest.Result(item=item.item, outcome=jobs_pb2.OUTCOME_DONE)
        began = time.monotonic()
        try:
            result.result = self._patiently(lambda: self._functions[lease.kind](work))
            if len(result.result) > _MAX_RESULT:
                size = len(result.result)
                result.Clear()
                raise InvalidArgument(f"the result has {size} bytes; at most {_MAX_RESULT} are taken")
            result.verdict = jobs.verdict(self._settings.kinds[lease.kind], result.result)
        except Exception as error:
            text = str(error) if isinstance(error, MsprobeError) else f"{type(error).__name__}: {error}"
            result.Clear()
            result.item, result.outcome = item.item, jobs_pb2.OUTCOME_FAILED
            result.message = text.encode("utf-8", "replace").decode()
        result.run_us = int((time.monotonic() - began) * 1e6)
        return result

    def _flush(self, lease: jobs_pb2.LeaseResponse) -> None:
        if not self._results:
            return
        refused = self._client.jobs.finish(lease.lease, lease.job, self._results, worker=self._settings.worker)
        self._results = []
        self._flushed = time.monotonic()
        if refused:
            self._gone.set()
            some = refused[0]
            say(f"{self._settings.worker}: {len(refused)} results were not taken; item {some.item}: {some.why}")

    def _beat(self) -> None:
        while not self._ending.wait(self._settings.lease_ms / 3000):
            lease = self._lease
            if lease is None:
                continue
            try:
                if self._client.jobs.heartbeat([lease.lease]):
                    self._gone.set()
            except MsprobeError:
                pass  # the next one may get through

    def _patiently(self, call: Callable[[], T]) -> T:
        """Until the server is there."""
        return patiently(call, lambda error: say(f"{self._settings.worker}: {error}; trying again"))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end_with_supervisor(process: WorkerProcess) -> None:
    # Not by sys.stdin: a thread that waits in it makes Python abort at its end.
    while os.read(0, 4096):
        pass
    process.give_back()
    os._exit(1)


def main() -> None:
    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise _EndNow

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor's to hear
    signal.signal(signal.SIGTERM, end)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        process = WorkerProcess(Settings(**json.loads(sys.stdin.buffer.readline())))
    except MsprobeError as error:
        say(str(error))
        sys.exit(EXIT_USAGE)
    except _EndNow:
        return
    threading.Thread(target=_end_with_supervisor, args=[process], daemon=True).start()
    try:
        process.run()
    except MsprobeError as error:
        say(str(error))
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()

"""A job under fire: server, workers and supervisors are killed at random, and each item has one result."""

import os
import pathlib
import random
import signal
import sys
import time
from contextlib import ExitStack

from msprobe_client import Client
from msprobe_client.errors import MsprobeError

from harness.processes import Background, external_server, find_binary

KIND = """
import time

def run(work):
    time.sleep(float(work.payload))
    return work.name.encode()
"""
LEASE_SECONDS = 2


def children(pid):
    """Processes of a supervisor."""
    try:
        found = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(each) for each in found]


class Fire:
    def __init__(self, directory, socket, seed):
        self._directory = directory
        self._socket = socket
        self._random = random.Random(seed)
        self._logs = 0
        (directory / "chaos_kind.py").write_text(KIND)

    def _log(self):
        self._logs += 1
        return self._directory / f"log{self._logs}"

    def _server(self, cleanup):
        return cleanup.enter_context(external_server(self._socket, self._directory / "data", self._log()))

    def _worker(self, cleanup):
        command = [find_binary("msprobe-client"), "--server", f"unix:{self._socket}", "worker", "--processes", 2]
        command += ["--kinds", "chaos=chaos_kind", "--lease", LEASE_SECONDS, "--batch", 8]
        paths = os.pathsep.join([str(self._directory), *filter(None, [os.environ.get("PYTHONPATH")])])
        return cleanup.enter_context(Background(command, self._log(), PYTHONPATH=paths))

    def _kill(self, cleanup, server, workers):
        """One blow; gives the server that then runs."""
        what = self._random.choice(["server", "process", "process", "supervisor", "machine"])
        at = self._random.randrange(len(workers))
        if what == "server":
            server.process.kill()
            server.process.wait()
            time.sleep(self._random.uniform(0, 0.3))
            return self._server(cleanup)
        pid = workers[at].process.pid
        if what == "process" and (found := children(pid)):
            os.kill(self._random.choice(found), signal.SIGKILL)
        elif what == "supervisor":
            workers[at].process.kill()
            workers[at] = self._worker(cleanup)
        elif what == "machine":
            os.killpg(pid, signal.SIGKILL)
            workers[at] = self._worker(cleanup)
        return server

    def run(self, items, seconds):
        """Kills for so long, or until the job is done; then the job is left to end, and its results are counted."""
        with ExitStack() as cleanup:
            server = self._server(cleanup)
            with Client(f"unix:{self._socket}") as client:
                dump = self._directory / "dump" / "step0" / "rank0"
                dump.mkdir(parents=True)
                (dump / "dump.json").write_text(
                    '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": '
                    '{"Torch.f.0.forward": {"input_args": [], "input_kwargs": {}, "output": []}}}'
                )
                client.import_dump(self._directory / "dump", "r")
                job = client.jobs.create("r", "chaos", attempts=100)
                times = (f"{self._random.uniform(0, 0.04):.4f}".encode() for _ in range(items))
                job = client.jobs.add(job, [(str(item), each) for item, each in enumerate(times)])
            workers = [self._worker(cleanup) for _ in range(2)]
            end = time.monotonic() + seconds
            blows = 0
            while time.monotonic() < end:
                time.sleep(self._random.uniform(0.2, 1.2))
                server = self._kill(cleanup, server, workers)
                blows += 1
            found = self._results(job.job)
            with Client(f"unix:{self._socket}") as client:
                progress = client.jobs.get(job.job)
        assert [result.item for result in sorted(found, key=lambda each: each.item)] == list(range(items))
        assert [result.order for result in found] == list(range(items))
        assert all(result.outcome == "done" and result.result == result.name.encode() for result in found)
        assert (progress.state, progress.done, progress.waiting, progress.leased) == ("finished", items, 0, 0)
        print(f"{blows} blows, {progress.attempts_lost} attempts lost", file=sys.stderr)
        return blows

    def _results(self, job):
        """All, when the job has ended."""
        end = time.monotonic() + 120
        while True:
            try:
                with Client(f"unix:{self._socket}") as client:
                    return list(client.jobs.results(job, follow=True))
            except MsprobeError:
                assert time.monotonic() < end
                time.sleep(0.2)

"""A process that does slow imports once, and forks another for each request."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import threading

from harness.processes import environment

START_S = 240  # imports of torch, transformers and the tool, on a busy machine


class RequestFailed(AssertionError):
    """A request that was not answered, or not in time."""


class ForkServer:
    """Sends requests, one JSON object a line, and gives the answers, one after another. Thread-safe.

    The first request starts the program, and close() ends it. Its other lines are passed over. Invariant: a request
    without an answer in time ends the process, and the next request starts another.
    """

    def __init__(self, command, log, **env):
        self._command, self._log, self._env = [str(part) for part in command], pathlib.Path(log), env
        self._lock = threading.Lock()
        self._process = None
        self._answers = None

    def ask(self, request, seconds=120):
        with self._lock:
            if self._process is None:
                self._start()
                seconds += START_S
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            try:
                answer = self._answers.get(timeout=seconds)
            except queue.Empty:
                self._kill()
                raise RequestFailed(f"no answer within {seconds} s") from None
            if answer is None:
                self._kill()
                raise RequestFailed(f"the program ended\n{self._log.read_text(errors='replace')[-4000:]}")
            return answer

    def close(self):
        with self._lock:
            if self._process is not None:
                self._kill()

    def _start(self):
        self._answers = queue.SimpleQueue()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(**self._env),
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._process.stdout, self._answers), daemon=True).start()

    @staticmethod
    def _read(stream, answers):
        for line in stream:
            if line.startswith("{"):
                answers.put(json.loads(line))
        answers.put(None)

    def _kill(self):
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process = None

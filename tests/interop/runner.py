"""A process that has imported one of the tools and forks another for each case it is asked to run."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import threading

from harness.processes import environment

CASES_SCRIPT = pathlib.Path(__file__).with_name("cases.py")
START_S = 240  # imports of torch, transformers and the tool, on a busy machine
CASE_S = 120


class CaseFailed(AssertionError):
    """A case that ended with an error, or not in time; the message ends with what it printed."""


class Runner:
    """Runs cases one after another. Thread-safe. Starts at the first case; close() ends it.

    Invariant: a case that does not end in time takes the process with it, and the next case starts another.
    """

    def __init__(self, python, log, **env):
        self._python, self._log, self._env = python, pathlib.Path(log), env
        self._lock = threading.Lock()
        self._process = None
        self._answers = None

    def run(self, case, out, hooks=False):
        with self._lock:
            limit = CASE_S
            if self._process is None:
                self._start()
                limit += START_S
            self._process.stdin.write(json.dumps({"case": case, "out": str(out), "hooks": hooks}) + "\n")
            self._process.stdin.flush()
            try:
                answer = self._answers.get(timeout=limit)
            except queue.Empty:
                self._kill()
                raise CaseFailed(f"{case} did not end within {limit} s\n{self._printed(out)}") from None
            if answer is None:
                self._kill()
                raise CaseFailed(f"the process that runs the cases ended in {case}\n{self._log.read_text()[-4000:]}")
        if answer["code"] != 0:
            raise CaseFailed(f"{case} ended with {answer['code']}\n{self._printed(out)}")

    def close(self):
        with self._lock:
            if self._process is not None:
                self._kill()

    def _start(self):
        self._answers = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [str(self._python), str(CASES_SCRIPT), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("ab"),
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
        self._process = None

    @staticmethod
    def _printed(out):
        log = pathlib.Path(out) / "log.txt"
        return log.read_text(errors="replace")[-6000:] if log.exists() else ""

"""One run of each case by either tool, side by side, kept for the session."""

import concurrent.futures
import dataclasses
import pathlib
import shutil
import sys

import pytest
from harness.dumps import rank_directory
from harness.fork_server import ForkServer

CASES_SCRIPT = pathlib.Path(__file__).with_name("cases.py")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Rank directories of step 0."""

    ours: pathlib.Path
    real: pathlib.Path


class SideBySide:
    def __init__(self, root, reference, oracle_python):
        self._root = root
        self._made = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(2)
        shared = {"MSPROBE_REFERENCE": reference}
        self._runners = {
            "ours": ForkServer([sys.executable, CASES_SCRIPT, "--serve"], root / "ours.log", **shared),
            # Both tools are `import msprobe`: the path to ours must not reach the other environment.
            "real": ForkServer([oracle_python, CASES_SCRIPT, "--serve"], root / "real.log", PYTHONPATH=None, **shared),
        }

    def case(self, name):
        """Both runs of a case, made at the same time."""
        runs = {side: self._start(side, name) for side in ("ours", "real")}
        return Pair(**{side: run.result() for side, run in runs.items()})

    def one(self, name, side):
        """One run alone; side is ours, real, or "ours with hooks"."""
        return self._start(side, name).result()

    def close(self):
        self._pool.shutdown(cancel_futures=True)
        for runner in self._runners.values():
            runner.close()

    def _start(self, side, name):
        """A failure is kept as well, and raised again for each test that asks."""
        key = (side, name)
        if key not in self._made:
            self._made[key] = self._pool.submit(self._run, *key)
        return self._made[key]

    def _run(self, side, name):
        out = self._root / side.replace(" ", "_") / name
        request = {"case": name, "out": str(out), "hooks": side.endswith("with hooks")}
        code = self._runners[side.split()[0]].ask(request)["code"]
        assert code == 0, f"{name} ended with {code}\n{(out / 'log.txt').read_text(errors='replace')[-6000:]}"
        return rank_directory(out / "out")


@pytest.fixture(scope="session")
def side_by_side(tmp_path_factory, reference, oracle_python):
    root = tmp_path_factory.mktemp("pairs")
    runs = SideBySide(root, reference, oracle_python)
    yield runs
    runs.close()
    shutil.rmtree(root, ignore_errors=True)

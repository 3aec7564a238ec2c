"""One run of each case by either tool, side by side, kept for the session."""

import concurrent.futures
import dataclasses
import pathlib
import shutil
import sys

import cases
import pytest
from harness.dumps import rank_directory
from harness.processes import run

CASES_SCRIPT = pathlib.Path(__file__).with_name("cases.py")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Rank directories of step 0."""

    ours: pathlib.Path
    real: pathlib.Path


class SideBySide:
    def __init__(self, root, reference, oracle_python):
        self._root = root
        self._reference = reference
        self._pythons = {"ours": pathlib.Path(sys.executable), "real": oracle_python}
        self._made = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(2)
        self._recorded = cases.load_make(reference).CASES

    def case(self, name):
        """Both runs of a case, made at the same time."""
        runs = {side: self._start(side, name) for side in self._pythons}
        return Pair(**{side: run.result() for side, run in runs.items()})

    def one(self, name, side):
        """One tool's run alone."""
        return self._start(side, name).result()

    def _start(self, side, name):
        """A failure is kept as well, and raised again for each test that asks."""
        if (side, name) not in self._made:
            self._made[side, name] = self._pool.submit(self._run, side, name)
        return self._made[side, name]

    def _run(self, side, name):
        out = self._root / side
        python = self._pythons["real" if side == "real" else "ours"]
        # Both tools are `import msprobe`: what leads to ours must not lead the other environment there.
        env = {"PYTHONPATH": None} if side == "real" else {}
        if side == "ours with hooks":
            out = self._root / "hooked" / name
            command = [python, CASES_SCRIPT, "--case", name, "--with-backward-hooks", "--out", out]
            run(command, MSPROBE_REFERENCE=self._reference)
            return rank_directory(out / "out")
        if name in self._recorded:
            script = self._reference / "dump" / "make.py"
            run([python, script, "--case", name, "--out", out], **env)
            return out / name / "step0" / "proc0"
        run([python, CASES_SCRIPT, "--case", name, "--out", out / name], MSPROBE_REFERENCE=self._reference, **env)
        return rank_directory(out / name / "out")


@pytest.fixture(scope="session")
def side_by_side(tmp_path_factory, reference, oracle_python):
    root = tmp_path_factory.mktemp("pairs")
    yield SideBySide(root, reference, oracle_python)
    shutil.rmtree(root, ignore_errors=True)

"""Third steps of whole trainings, captured with tensors and checked: right operators get no wrong verdict."""

import json
import os
import subprocess
import sys

import pytest
from harness.processes import PROGRAMS, environment, run

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("which", "workers", "at_least"),
    [("digits", ("--workers", "2"), 30), ("residual", (), 60), ("transformer", ("--workers", "2"), 120)],
)
def test_a_right_run_has_no_false_verdict(client, tmp_path, dump_path, which, workers, at_least):
    run([sys.executable, PROGRAMS / "whole_run.py", dump_path, which], OMP_NUM_THREADS=1)
    output = tmp_path / "rows.json"
    words = ["check", dump_path, *workers, "--format", "json", "--output", output]
    done = subprocess.run(
        [os.fspath(word) for word in (client, *words)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment(OMP_NUM_THREADS=1),
    )
    rows = json.loads(output.read_text())["rows"]
    wrong = [(row["name"], row["verdict"], row["rule"], row["reason"]) for row in rows if row["verdict"] != "pass"]
    wrong = [each for each in wrong if each[1] != "skip"]
    assert not wrong and done.returncode == 0, (wrong, done.stderr)
    assert len([row for row in rows if row["verdict"] == "pass"]) >= at_least

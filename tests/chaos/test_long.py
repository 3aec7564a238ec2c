"""The long forms of the crash tests; `make test` runs the short ones as unit tests."""

import os
import subprocess

import pytest
from harness.processes import REPOSITORY

CHAOS = REPOSITORY / "build" / "tests" / "chaos"


def run_test(binary, timeout, **environment):
    path = CHAOS / binary
    assert path.is_file(), f"{path} is not built: run `ninja -C build {binary}`"
    done = subprocess.run(
        [path], env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.timeout(1200)
def test_two_hundred_kills_of_the_server():
    run_test("server_crash_test", 1100, MSPROBE_CHAOS_KILLS="200")

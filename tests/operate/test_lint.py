"""The linters that take less than a minute together. clang-tidy, which reads every source, is in `make lint`."""

import sys

import pytest
from harness.processes import REPOSITORY, run


@pytest.mark.parametrize("linter", ["clang-format", "ruff", "mypy"])
def test_a_linter_finds_nothing(linter):
    done = run([sys.executable, "scripts/lint.py", linter], cwd=REPOSITORY, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

"""The peak memory that capture adds: libraries, buffers, and blocks that malloc cannot join because of it."""

import re
import sys

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, run

CEILING_MIB = 64
FRAGMENTS_MIB = 24  # holes in the program's heap: how its malloc falls out differs from run to run


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_the_ceiling_holds_all_of_it(tmp_path, task):
    config = write_config(
        tmp_path / "config.json", tmp_path / "dump", task=task, level="mix", memory_ceiling_mb=CEILING_MIB
    )
    output = run([sys.executable, PROGRAMS / "memory_held.py", config]).stdout
    sent, added = (float(part) for part in re.search(r"SENT (\d+) ADDED (\S+)", output).groups())
    if task == "tensor":
        assert sent > 2 * CEILING_MIB, "more than the ceiling went through"
    assert added <= CEILING_MIB + (FRAGMENTS_MIB if task == "tensor" else 0)

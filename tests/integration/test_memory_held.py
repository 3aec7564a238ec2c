"""The peak memory that capture adds: libraries, buffers, and blocks that malloc cannot join because of it."""

import json
import re
import sys

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, run

CEILING_MIB = 64
SLOW_DISK_S = 90  # that a sync may take: past the bound the program goes on, and records are lost
FRAGMENTS_MIB = 24  # holes in the program's heap: how its malloc falls out differs from run to run


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_the_ceiling_holds_all_of_it(tmp_path, task):
    config = write_config(
        tmp_path / "config.json",
        tmp_path / "dump",
        task=task,
        level="mix",
        memory_ceiling_mb=CEILING_MIB,
        stall_bound_s=SLOW_DISK_S,
    )
    output = run([sys.executable, PROGRAMS / "memory_held.py", config], timeout=2 * SLOW_DISK_S).stdout
    sent, added = (float(part) for part in re.search(r"SENT (\d+) ADDED (\S+)", output).groups())
    if task == "tensor":
        assert sent > 2 * CEILING_MIB, "more than the ceiling went through"
    assert added <= CEILING_MIB + (FRAGMENTS_MIB if task == "tensor" else 0)


DEPTH = 1200  # of calls, each in the next
DEEP_CEILING_MIB = 128  # their stacks alone would be longer, if each were kept whole


def test_the_ceiling_holds_the_stacks_of_calls_that_nest_deeply(tmp_path):
    dump = tmp_path / "dump"
    config = write_config(tmp_path / "config.json", dump, level="L1", memory_ceiling_mb=DEEP_CEILING_MIB)
    output = run([sys.executable, PROGRAMS / "deep_calls.py", config, str(DEPTH), tmp_path]).stdout
    assert float(re.search(r"ADDED (\S+)", output)[1]) <= DEEP_CEILING_MIB

    (path,) = (dump / "step0").glob("*/stack.json")
    stacks = {
        name: [line for line in frames if "deep_calls.py" in line or "levels.py" in line or "left out" in line]
        for names, frames in json.loads(path.read_text()).values()
        for name in names
    }
    shallow, deep = stacks["Torch.relu.100.forward"], stacks[f"Torch.relu.{DEPTH}.forward"]
    assert [re.search(r", in (\S+),", line)[1] for line in shallow] == [
        *(f"level_{level}" for level in range(100, -1, -1)),
        *("main", "<module>"),
    ]
    (cut,) = (place for place, line in enumerate(deep) if "left out" in line)
    innermost, outermost = deep[:cut], deep[cut + 1 :]
    assert f"in level_{DEPTH}," in innermost[0] and f"in level_{DEPTH - len(innermost) + 1}," in innermost[-1]
    assert "in <module>," in outermost[-1]
    assert (len(innermost), len(outermost)) == (384, 128)

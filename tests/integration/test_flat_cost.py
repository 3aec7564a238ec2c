"""The ten thousandth record of a step costs as much as the first."""

import re
import sys

import pytest
from harness import spread
from harness.dumps import write_config
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, REPOSITORY, run

LIMIT = 1.1


def test_a_record_costs_the_same_however_many_came_before(tmp_path):
    config = write_config(tmp_path / "config.json", tmp_path / "dump")
    output = run([sys.executable, PROGRAMS / "many_records.py", config]).stdout
    emitted = int(re.search(r"EMITTED (\d+)", output)[1])
    assert emitted == 2 * 201_000, "a begin and an end of each, and of no other call"
    first, last = (
        [float(ratio) for ratio in re.search(rf"{edge} (.*)", output)[1].split()] for edge in ("FIRST", "LAST")
    )
    growth = [later / earlier for earlier, later in zip(first, last, strict=True)]
    print(f"the last blocks cost {spread.described(growth)} times what the first did")
    assert not spread.surely_above(growth, LIMIT)


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", mostly_nightly(["L0", "L1", "mix"], "mix"))
def test_a_repeated_step_asks_malloc_for_hardly_anything(tmp_path, level, task):
    # Small blocks between freed tensors cost a program the memory of its next ones.
    config = write_config(tmp_path / "config.json", tmp_path / "dump", task=task, level=level)
    counting = REPOSITORY / "build" / "tests" / "libmalloc_count.so"
    output = run([sys.executable, PROGRAMS / "malloc_calls.py", config], LD_PRELOAD=counting).stdout
    plain, captured, records = map(int, re.search(r"PLAIN (\d+) CAPTURED (\d+) RECORDS (\d+)", output).groups())
    assert records > 100
    assert captured - plain <= records // 4

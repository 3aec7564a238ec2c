"""The ten thousandth record of a step costs what the first did."""

import re
import sys

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, REPOSITORY, run

LIMIT = 1.25
TRIES = 3  # the machine may be busy with something else


def test_a_record_costs_the_same_however_many_came_before(tmp_path):
    ratios = []
    for turn in range(TRIES):
        config = write_config(tmp_path / f"config{turn}.json", tmp_path / f"dump{turn}")
        output = run([sys.executable, PROGRAMS / "many_records.py", config]).stdout
        emitted = int(re.search(r"EMITTED (\d+)", output)[1])
        assert emitted >= 2 * 200_000, "a begin and an end of each"
        first, last = (float(part) for part in re.search(r"FIRST (\S+) LAST (\S+)", output).groups())
        ratios.append(last / first)
        if ratios[-1] <= LIMIT:
            return
    raise AssertionError(f"the last blocks took {ratios} times what the first took")


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_repeated_step_asks_malloc_for_hardly_anything(tmp_path, level, task):
    # Small blocks between freed tensors cost a program the memory of its next ones.
    config = write_config(tmp_path / "config.json", tmp_path / "dump", task=task, level=level)
    counting = REPOSITORY / "build" / "tests" / "libmalloc_count.so"
    output = run([sys.executable, PROGRAMS / "malloc_calls.py", config], LD_PRELOAD=counting).stdout
    plain, captured, records = map(int, re.search(r"PLAIN (\d+) CAPTURED (\d+) RECORDS (\d+)", output).groups())
    assert records > 100
    assert captured - plain <= records // 4

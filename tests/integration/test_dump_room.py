"""A dump takes no more of its disk than it may: max_steps, dump_quota_mb, else half of what is free."""

import contextlib
import re
import shutil
import sys

import pytest
from harness.dumps import write_config
from harness.fire import small_disk
from harness.processes import PROGRAMS, Background, run

pytestmark = pytest.mark.timeout(120)


@contextlib.contextmanager
def bounded(directory, dump, **fields):
    config = write_config(directory / "config.json", dump, task="tensor", **fields)
    end = directory / "end"
    with Background([sys.executable, PROGRAMS / "bounded.py", config, end], directory / "program.log") as program:
        yield program
        end.touch()
        program.finish(100)


def steps_of(dump):
    return {int(path.name.removeprefix("step")) for path in dump.glob("step*")}


def last_step(program):
    return max(map(int, re.findall(r"STEP (\d+)", program.output)), default=-1)


def passes_steps(program, count=10):
    """Waits until the program, which captures or not, is that much further. Gives its step then."""
    begun = last_step(program)
    program.wait_for(lambda: last_step(program) >= begun + count, 60, f"{count} further steps")
    return last_step(program)


def mebibytes(directory):
    return int(run(["du", "-sm", directory]).stdout.split()[0])


def test_max_steps_ends_capturing_and_not_the_program(tmp_path):
    dump = tmp_path / "dump"
    with bounded(tmp_path, dump, max_steps=3) as program:
        passes_steps(program)
    assert steps_of(dump) == {0, 1, 2}
    assert "msprobe ends successfully" in program.output and "Traceback" not in program.output


def test_at_the_quota_capturing_pauses_and_goes_on_when_there_is_room(tmp_path):
    dump = tmp_path / "dump"
    with bounded(tmp_path, dump, dump_quota_mb=120) as program:
        program.wait_for(lambda: "capturing pauses:" in program.output, 60, "the quota is reached")
        paused = last_step(program)
        passes_steps(program)
        assert max(steps_of(dump)) <= paused + 2, "no further step is captured"
        assert mebibytes(dump) < 240, "what was on its way may come, its files too, and a log"
        for step in steps_of(dump):
            shutil.rmtree(dump / f"step{step}", ignore_errors=True)
        program.wait_for(lambda: "capturing goes on:" in program.output, 60, "there is room")
        program.wait_for(lambda: any(step > paused + 2 for step in steps_of(dump)), 60, "a further step")
    assert "120 MiB (dump_quota_mb)" in program.output
    assert "Traceback" not in program.output


def test_a_dump_never_fills_its_disk(tmp_path):
    with small_disk(tmp_path / "disk", 400) as disk:
        with bounded(tmp_path, disk / "dump") as program:
            program.wait_for(lambda: "capturing pauses:" in program.output, 100, "half of the disk is taken")
            passes_steps(program)
        assert "half of what its disk had free" in program.output and "Traceback" not in program.output
        used = shutil.disk_usage(disk)
        assert used.free > 0.25 * used.total, "half is the limit, of which a quarter more may have been on its way"

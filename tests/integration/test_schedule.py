"""Steps that a schedule chooses, with start() and stop() around each, and with start() once."""

import sys

import pytest
from harness.dumps import exported_steps, write_config
from harness.processes import PROGRAMS, Background, external_server, wait_for_servers_to_leave
from msprobe_client import Client

SCHEDULE = {"skip_first": 1, "wait": 2, "warmup": 1, "active": 2, "repeat": 2}
WANTED = [4, 5, 9, 10]
pytestmark = pytest.mark.timeout(180)


def steps_of(directory, *arguments, until=15, **configuration):
    """Runs until so many steps have passed."""
    config = write_config(directory / "config.json", directory / "dump", schedule=SCHEDULE, **configuration)
    progress, end = directory / "progress", directory / "end"
    command = [sys.executable, PROGRAMS / "controlled.py", "--config", config, "--progress", progress, "--end", end]
    with Background([*command, *arguments], directory / "program.log") as program:
        program.wait_for(lambda: progress.exists() and int(progress.read_text()) >= until, 60, "the steps")
        end.touch()
        program.finish()
    return program.output


@pytest.mark.parametrize("arguments", [(), ("--once",)])
def test_the_steps_are_those_of_the_schedule(tmp_path, arguments):
    said = steps_of(tmp_path, *arguments, level="L0")
    wait_for_servers_to_leave(tmp_path)
    assert exported_steps(tmp_path / "dump") == WANTED
    assert "msprobe ends successfully" in said


def test_with_task_monitor_it_chooses_the_activations(tmp_path, short_directory):
    address = f"unix:{short_directory / 's'}"
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log"):
        steps_of(tmp_path, task="monitor", server=address, run="watched")
        with Client(address) as client:
            assert [step.step for step in client.steps("watched")] == WANTED

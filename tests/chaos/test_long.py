"""The long forms of the tests under fire; `make test` runs the short ones."""

import os
import subprocess

import pytest
from harness import scenarios
from harness.processes import REPOSITORY

CHAOS = REPOSITORY / "build" / "tests" / "chaos"
# How long the network is gone and processes stand still.
LONG_S = int(os.environ.get("MSPROBE_CHAOS_LONG_SECONDS", "600"))


def run_test(binary, timeout, **environment):
    path = CHAOS / binary
    assert path.is_file(), f"{path} is not built: run `ninja -C build {binary}`"
    done = subprocess.run(
        [path], env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.timeout(1800)
def test_two_hundred_kills_of_the_server():
    run_test("server_crash_test", 1700, MSPROBE_CHAOS_KILLS="200")


@pytest.mark.timeout(900)
def test_a_minute_of_each_unruly_network():
    run_test("network_test", 850, MSPROBE_CHAOS_SECONDS="60")


@pytest.mark.timeout(3600)  # 29 minutes beside four other loads on two cores
def test_two_hundred_kills_of_agents(tmp_path, short_directory):
    scenarios.agents_killed(tmp_path, short_directory / "s", kills=200)


@pytest.mark.timeout(LONG_S + 900)
def test_ten_minutes_without_a_network(tmp_path):
    scenarios.network_gone(tmp_path, LONG_S)


@pytest.mark.timeout(LONG_S + 900)
@pytest.mark.parametrize("policy", ["spool", "drop"])
def test_ten_minutes_of_a_frozen_server(policy, tmp_path, short_directory):
    scenarios.server_frozen(tmp_path, short_directory / "s", LONG_S, policy)


@pytest.mark.timeout(LONG_S + 900)
def test_ten_minutes_of_a_frozen_agent(tmp_path, short_directory):
    scenarios.agent_frozen(tmp_path, short_directory / "s", LONG_S)

"""Frozen, killed, cut off and without room: the short forms of harness/scenarios.py."""

import pytest
from harness import scenarios

SECONDS = 3


@pytest.mark.timeout(180)
def test_the_network_is_gone_for_a_while(tmp_path):
    scenarios.network_gone(tmp_path, SECONDS)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("policy", ["spool", "stall", "drop"])
def test_a_frozen_server_holds_a_rank_no_longer_than_its_policy_says(policy, tmp_path, short_directory):
    outcomes = scenarios.server_frozen(tmp_path, short_directory / "s", SECONDS, policy)
    if policy != "spool":
        assert all(outcome["fragments_dropped"] > 0 for outcome in outcomes), "nothing was lost: this tests nothing"


@pytest.mark.timeout(180)
def test_a_frozen_agent_goes_on_where_it_stood(tmp_path, short_directory):
    scenarios.agent_frozen(tmp_path, short_directory / "s", SECONDS)


@pytest.mark.timeout(180)
def test_killed_agents_leave_a_prefix_and_the_next_process_sends_what_they_spooled(tmp_path, short_directory):
    scenarios.agents_killed(tmp_path, short_directory / "s", kills=12)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("reserve_mib", [0, 16])
def test_a_full_file_system_loses_nothing_acknowledged(reserve_mib, tmp_path, short_directory, ask):
    scenarios.disk_full(tmp_path, short_directory / "s", reserve_mib, ask)

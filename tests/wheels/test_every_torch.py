"""The agent's wheel of every torch and Python, in an environment for each: it captures, and changes nothing."""

import json
import shutil

import pytest
from environments import agents, outcome_of
from harness.dumps import exported_steps, rank_directory, read_dump, write_config
from harness.processes import wait_until


def test_there_are_agents():
    assert agents(), "run `make wheels-all`"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_transformer_is_captured_and_no_bit_changes(agent, task, level, without, tmp_path):
    config = write_config(tmp_path / "config.json", tmp_path / "dump", task=task, level=level)
    arguments = ("--agent", "on", "--config", config)
    captured = json.loads(outcome_of(agent, tmp_path / "out.json", *arguments).read_text())
    assert captured == without

    wait_until(lambda: exported_steps(tmp_path / "dump"), 60, "a step is exported")
    rank = rank_directory(tmp_path / "dump")
    assert not (rank / "dump_error_info.log").exists()
    entries = read_dump(rank)["data"]
    assert any(name.startswith("Module.") and name.endswith(".backward.0") for name in entries), list(entries)[:20]
    assert any(name.startswith("Functional.linear.") for name in entries) == (level == "mix")
    assert bool(list(rank.glob("dump_tensor_data/*.pt"))) == (task == "tensor")
    shutil.rmtree(tmp_path / "dump")

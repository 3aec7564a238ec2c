"""The agent's wheel of every torch and Python, in an environment for each: it captures, and changes nothing."""

import json
import shutil

import pytest
import torch
from environments import agents, outcome_of
from harness.dumps import exported_steps, leaves, rank_directory, read_dump, write_config
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
    if task == "tensor":
        numbers_are_those_of_the_tensors(rank, entries)
    shutil.rmtree(tmp_path / "dump")


def numbers_are_those_of_the_tensors(rank, entries):
    compared = 0
    for entry in entries.values():
        for _, leaf in leaves(entry):
            if leaf.get("dtype") == "torch.float32" and leaf["Norm"] is not None:
                values = torch.load(rank / "dump_tensor_data" / leaf["data_name"]).double()
                found = [leaf[number] for number in ("Max", "Min", "Mean", "Norm")]
                expected = [values.max().item(), values.min().item(), values.mean().item(), values.norm().item()]
                assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), leaf["data_name"]
                compared += 1
    assert compared > 50

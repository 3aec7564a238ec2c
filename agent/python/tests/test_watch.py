"""Calls of msprobe.watch that are refused or of no use."""

import json
import subprocess
import sys

import msprobe
import pytest
import torch
from msprobe._common.errors import MsprobeError
from msprobe.pytorch import PrecisionDebugger


@pytest.fixture
def watch():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    yield lambda **given: msprobe.watch(model, optimizer, **given)
    assert PrecisionDebugger._instance is None


def test_one_that_is_refused_leaves_nothing_behind(watch, tmp_path):
    with pytest.raises(MsprobeError, match="heads"):
        watch(model_series=["heads"])
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "monitor", "dump_path": str(tmp_path), "monitor": {"interval": 0}}))
    with pytest.raises(MsprobeError, match="interval"):
        watch(config_path=config)


def test_so_is_one_of_another_task(watch, tmp_path):
    config = tmp_path / "config.json"
    for task in ("statistics", "structure"):
        config.write_text(json.dumps({"task": task, "dump_path": str(tmp_path)}))
        with pytest.raises(MsprobeError, match=f"'{task}'; it should be 'monitor'"):
            watch(config_path=config)


NEVER_STEPS = """
import sys, torch, msprobe
model = torch.nn.Linear(4, 2)
watched, other = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
msprobe.watch(model, watched, config_path=sys.argv[1])
if sys.argv[2] == "steps":
    msprobe.watch(model, other)
model(torch.ones(2, 4)).sum().backward()
other.step()
if sys.argv[2] == "raises":
    raise RuntimeError("its own")
"""


@pytest.mark.parametrize("ends", ["well", "raises", "steps"])
def test_an_optimizer_that_never_steps_is_said(ends, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "monitor", "dump_path": str(tmp_path), "monitor": {"activations": 0}}))
    command = [sys.executable, "-c", NEVER_STEPS, config, ends]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    said = "watch: the optimizer never stepped" in done.stdout + done.stderr
    assert said == (ends == "well"), "a program that fails has said enough, and of two the second steps"

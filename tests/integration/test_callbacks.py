"""The debugger in the loops of Hugging Face's Trainer, Lightning and accelerate, each the real library."""

import json
import re
import sys

import pytest
from harness.dumps import write_config
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, external_server, run
from msprobe_client import Client

STEPS = 4
LIBRARIES = ("transformers", "lightning", "pytorch_lightning", "accelerate")
PREFIX = {"lightning": "net.", "pytorch_lightning": "net."}  # their module holds ours


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """trained(trainer, config=None, first=0): what it printed, and the digest of what it has learned."""
    place, kept = tmp_path_factory.mktemp("trained"), {}

    def train(trainer, config=None, first=0):
        if (config, first) == (None, 0) and trainer in kept:
            return kept[trainer]
        command = [sys.executable, PROGRAMS / "with_trainer.py", "--trainer", trainer, "--place", place / trainer]
        options = ["--first", first] + ([] if config is None else ["--config", config])
        done = run([*command, *options], timeout=180)
        said = done.stdout + done.stderr
        found = said, re.search(r"PARAMETERS (\w+)", done.stdout)[1]
        if config is None:
            kept[trainer] = found
        return found

    return train


@pytest.mark.parametrize("trainer", mostly_nightly(LIBRARIES[:3], "transformers", "lightning"))
def test_each_step_is_captured_with_all_its_micro_batches(trainer, trained, tmp_path, dump_path):
    config = write_config(tmp_path / "config.json", dump_path, task="statistics", level="mix")
    _, learned = trained(trainer, config)
    assert learned == trained(trainer)[1], "nothing of the training is changed"
    steps = sorted(path.name for path in dump_path.glob("step*"))
    assert steps == [f"step{step}" for step in range(STEPS)]
    for step in steps:
        (rank,) = (dump_path / step).iterdir()
        assert not (rank / "INCOMPLETE").exists()
        data = json.loads((rank / "dump.json").read_text())["data"]
        name = f"Module.{PREFIX.get(trainer, '')}hidden.Linear"
        assert [key for key in data if key.startswith(name) and "forward" in key] == [
            f"{name}.forward.{number}" for number in range(2)
        ]
        assert any(key.startswith(f"{name}.backward") for key in data)


@pytest.mark.parametrize("trainer", mostly_nightly(LIBRARIES, "transformers", "accelerate"))
def test_the_training_is_watched(trainer, trained, tmp_path):
    address = f"unix:{tmp_path}/s"
    with external_server(tmp_path / "s", tmp_path / "data", tmp_path / "server.log"), Client(address) as client:
        section = {"activations": 0}
        top = {"task": "monitor", "server": address, "run": trainer, "monitor": section}
        config = write_config(tmp_path / "config.json", tmp_path / "dump", **top)
        _, learned = trained(trainer, config)
        assert learned == trained(trainer)[1], "nothing of the training is changed"
        found = {series.name: series for series in client.monitor.series(trainer)}
    gradient = found[f"{PREFIX.get(trainer, '')}hidden.weight.parameters_grad.reduced:norm"]
    assert gradient.steps == tuple(range(STEPS)) and all(value > 0 for value in gradient.values)
    assert f"{PREFIX.get(trainer, '')}hidden.weight.exp_avg_sq:norm" in found
    assert found["loss"].steps == tuple(range(STEPS))
    assert "note" not in found


def test_a_training_that_is_resumed_goes_on_with_its_steps(trained, tmp_path, dump_path):
    _, whole = trained("transformers")
    config = write_config(tmp_path / "config.json", dump_path, task="statistics", level="L0")
    _, learned = trained("transformers", config, first=2)
    assert learned == whole
    assert sorted(path.name for path in dump_path.glob("step*")) == ["step2", "step3"]

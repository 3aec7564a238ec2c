"""The agent changes nothing: losses, gradients, parameters, random state, and the list of aten operators."""

import json
import pathlib
import shutil
import sys

import pytest
from harness.dumps import exported_steps, write_config
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, run, wait_until

STEPS = 20
TENSOR_STEPS = 8  # each writes thousands of files
AGENTS = {
    "constructed": ("constructed", "L1", {}),
    "stopped": ("stopped", "mix", {}),
    "L0": ("on", "L0", {}),
    "L1": ("on", "L1", {}),
    "mix": ("on", "mix", {}),
    "L0 tensor": ("on", "L0", {"task": "tensor"}),
    "L1 tensor": ("on", "L1", {"task": "tensor"}),
    "mix tensor": ("on", "mix", {"task": "tensor"}),
    "mix md5 tensor": ("on", "mix", {"task": "tensor", "section": {"summary_mode": "md5"}}),
}
NETS = ("qwen2", "two_path", "data parallel", "encoder", "qwen2 checkpointing", "conv", "decode")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """outcomes(agent) -> the program's results; each agent runs once."""
    root = tmp_path_factory.mktemp("identity")
    known = {}

    def get(name):
        if name not in known:
            known[name] = trace(root / name.replace(" ", "_"), name)
        return known[name]

    return get


def trace(directory, name):
    directory.mkdir()
    out = directory / "out.json"
    arguments = ["--agent", "off"]
    steps = STEPS
    if name != "off":
        mode, level, more = AGENTS[name]
        if "task" in more:
            steps = 3 if "section" in more else TENSOR_STEPS  # with checksums beside those without
        config = write_config(directory / "config.json", directory / "dump", level=level, **more)
        arguments = ["--agent", mode, "--config", config]
    run([sys.executable, PROGRAMS / "bit_identity.py", *arguments, "--steps", steps, "--out", out], timeout=280)
    if name not in ("off", "constructed"):
        # The encoder's fused kernel calls none of its modules: at L0 nothing to record, and no directory.
        recorded = [net for net in NETS if not (level == "L0" and net == "encoder")]
        wanted = 1 if name == "stopped" else (len(recorded) - 1) * steps + 1  # all is decoded in one step
        # On a busy machine the program's end does not wait for all of them.
        wait_until(lambda: len(exported_steps(directory / "dump")) == wanted, 250, "all steps are exported")
    outcome = json.loads(pathlib.Path(out).read_text())
    shutil.rmtree(directory, ignore_errors=True)  # hundreds of megabytes of tensors
    return outcome


@pytest.mark.timeout(600)
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("agent", mostly_nightly(AGENTS, "mix", "mix md5 tensor"))
def test_nothing_changes(agent, net, outcomes):
    off, on = outcomes("off")[net], outcomes(agent)[net]
    steps = len(on["values"])
    for key in ("values", "gradients", "parameters", "rng", "python_rng"):
        changed = [step for step in range(steps) if on[key][step] != off[key][step]]
        assert not changed, f"{key} of steps {changed} differ"
    for step in range(steps):
        a, b = off["operators"][step], on["operators"][step]
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        assert a == b, (
            f"step {step}: {len(a)} operators without, {len(b)} with; from {at}: {a[at : at + 4]} {b[at : at + 4]}"
        )


@pytest.mark.parametrize("agent", mostly_nightly(("off", "L0", "L1", "mix"), "off", "mix"))
def test_the_encoder_takes_its_fused_kernel(agent, outcomes):
    for operators in outcomes(agent)["encoder"]["operators"]:
        assert "aten::_transformer_encoder_layer_fwd" in operators

"""Capture on a CUDA device, where there is one: as test_device.py on the device of tests."""

import json

import pytest
import torch
from harness.device_values import differences_from_host, extended_values
from harness.dumps import exported_steps, rank_directory, read_dump, write_config
from harness.processes import PROGRAMS, run_program

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="this machine has no CUDA device, or torch no CUDA"
)

STEPS = 2


@pytest.fixture(params=["on", None], ids=["kernels on", "kernels by default"], autouse=True)
def kernels(request, monkeypatch):
    """Kernels of our own, which are off by default."""
    if request.param is None:
        monkeypatch.delenv("MSPROBE_CUDA_KERNELS", raising=False)
    else:
        monkeypatch.setenv("MSPROBE_CUDA_KERNELS", request.param)
    return request.param


def train(directory, *arguments, agent=True, **configuration):
    directory.mkdir(parents=True, exist_ok=True)
    more = ["--agent", "off"]
    if agent:
        more = ["--config", write_config(directory / "config.json", directory / "dump", **configuration)]
    out = directory / "out.json"
    run_program(
        PROGRAMS / "on_device.py", "--device", "cuda", *more, "--steps", STEPS, "--out", out, *arguments, timeout=200
    )
    return json.loads(out.read_text()), directory / "dump"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("level", "task"), [("L0", "statistics"), ("mix", "statistics"), ("mix", "tensor")])
def test_nobody_waits_and_no_bit_changes(tmp_path, level, task):
    found, dump_path = train(tmp_path / "on", "--hold", level=level, task=task)
    plain, _ = train(tmp_path / "off", agent=False)
    assert (found["losses"], found["states"]) == (plain["losses"], plain["states"])
    assert exported_steps(dump_path) == list(range(STEPS))
    assert len(read_dump(rank_directory(dump_path, 1))["data"]) >= 6


@pytest.mark.timeout(400)
def test_every_type_and_layout(tmp_path, dump_path, ask, client, monkeypatch, kernels):
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "0")
    config = write_config(tmp_path / "config.json", dump_path, level="debug")
    done = run_program(PROGRAMS / "on_device_values.py", "--config", config, "--device", "cuda", "--steps", STEPS)
    # Kernels of our own compute from the second step on: in the first one they are on trial.
    assert ("cuda:0 computes statistics by kernels of msprobe's" in done.stdout) == (kernels == "on")
    for step in range(STEPS):
        data = extended_values(dump_path, step, ask, client, tmp_path / f"out{step}")
        wrong, checked = differences_from_host(data, "cuda:0")
        assert not wrong
        assert checked == len(data) / 2 > 80


@pytest.mark.timeout(200)
def test_a_captured_model_can_be_captured_into_a_graph(tmp_path):
    config = write_config(tmp_path / "config.json", tmp_path / "dump", level="mix")
    done = run_program(PROGRAMS / "cuda_graph.py", "--config", config)
    assert "EQUAL" in done.stdout

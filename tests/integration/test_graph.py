"""AclGraphDumper: models that run as graphs, on the host and on a device."""

import hashlib
import json
import math
import sys

import pytest
import torch
from harness.dumps import exported_steps, leaves, rank_directory, read_dump, write_config
from harness.fork_server import ForkServer
from harness.processes import PROGRAMS, run, run_program

CLOSE = 1e-5  # of a compiled model's numbers to the eager one's: fused sums round otherwise
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """graph.py, forked for each model: its imports take longer than most models here."""
    made = ForkServer([sys.executable, PROGRAMS / "graph.py", "--serve"], tmp_path_factory.mktemp("graphs") / "log")
    yield made
    made.close()


@pytest.fixture(scope="module")
def dumped(programs):
    """dumped(directory, *arguments, **configuration) runs graph.py; gives what it found and its dump_path."""

    def call(directory, *arguments, dumper="on", **configuration):
        directory.mkdir(parents=True, exist_ok=True)
        out, dump, log = directory / "out.json", directory / "dump", directory / "log.txt"
        config = write_config(directory / "config.json", dump, **configuration)
        given = ["--config", config, "--dumper", dumper, "--out", out, *arguments]
        answer = programs.ask({"arguments": [str(each) for each in given], "log": str(log)}, seconds=300)
        assert answer == {"code": 0}, log.read_text(errors="replace")[-8000:]
        return json.loads(out.read_text()), dump

    return call


def records(dump, step=0):
    return read_dump(rank_directory(dump, step))["data"]


def differences(ours, theirs):
    """Places whose numbers are further apart than CLOSE, in records with the same tensors."""
    here, there = dict(leaves(ours)), dict(leaves(theirs))
    assert here.keys() == there.keys()
    found = []
    for place, leaf in here.items():
        other = there[place]
        assert (leaf["shape"], leaf["dtype"]) == (other["shape"], other["dtype"])
        scale = max(1.0, abs(other["Norm"] or 0) / math.sqrt(max(1, math.prod(other["shape"]))))
        for key in ("Max", "Min", "Mean", "Norm"):
            if leaf[key] != other[key] and abs(leaf[key] - other[key]) > CLOSE * (
                scale if key != "Norm" else max(1.0, abs(other[key]))
            ):
                found.append((place, key, leaf[key], other[key]))
    return found


def calls(data):
    return {name: record["runs"] for name, record in data.items()}


def test_every_module_of_a_transformer_is_read_at_every_replay(tmp_path, dumped):
    plain, _ = dumped(tmp_path / "plain", "--net", "qwen2", dumper="off")
    found, dump = dumped(tmp_path / "graph", "--net", "qwen2", level="L0")
    assert (found["graph_breaks"], found["graphs"]) == (0, 1)
    assert found["outputs"] == plain["outputs"], "the probes changed what the model computes"
    _, eager = dumped(tmp_path / "eager", "--net", "qwen2", "--backend", "eager", level="L0")
    for step in range(2):
        ours, theirs = records(dump, step), records(eager, step)
        assert list(ours) == list(theirs)
        assert set(calls(ours).values()) == {1}
        assert all(record["captured"] is True for record in ours.values())
        assert not differences(ours, theirs)
        assert len(dict(leaves(ours))) >= 59
    construct = json.loads((rank_directory(dump) / "construct.json").read_text())
    assert construct["Module.model.layers.1.mlp.down_proj.Linear.forward.0"] == (
        "Module.model.layers.1.mlp.Qwen2MLP.forward.0"
    )
    stacks = json.loads((rank_directory(dump) / "stack.json").read_text())
    lines = [line for _, frames in stacks.values() for line in frames]
    assert any("modeling_qwen2.py" in line for line in lines)
    assert not any("msprobe" in line for line in lines)


def test_inductor_keeps_every_probe(tmp_path, dumped):
    plain, _ = dumped(tmp_path / "plain", "--backend", "inductor", dumper="off")
    found, dump = dumped(tmp_path / "graph", "--backend", "inductor", level="mix")
    _, eager = dumped(tmp_path / "eager", "--backend", "aot_eager", level="mix")
    assert found["graph_breaks"] == 0
    assert found["outputs"] == plain["outputs"], "the same bits as without probes"
    for step in range(2):
        ours, theirs = records(dump, step), records(eager, step)
        assert list(ours) == list(theirs)
        assert set(calls(ours).values()) == {1}
        assert not differences(ours, theirs)


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_operators_have_the_names_of_eager_dumps(tmp_path, level, dumped):
    plain, _ = dumped(tmp_path / "plain", dumper="off")
    found, dump = dumped(tmp_path / "graph", level=level)
    assert found["outputs"] == plain["outputs"]
    data = records(dump, 1)
    once = ["Functional.linear", "Functional.gelu", "Tensor.__add__", "Functional.layer_norm"]
    operators = [f"{name}.{count}.forward" for count in range(3) for name in once]
    assert [name for name in data if not name.startswith("Module")] == operators
    assert set(calls(data).values()) == {1}
    construct = json.loads((rank_directory(dump, 1) / "construct.json").read_text())
    if level == "mix":
        assert construct["Functional.linear.2.forward"] == "Module.layer.Linear.forward.2"
        assert list(data).index("Functional.linear.2.forward") < list(data).index("Module.layer.Linear.forward.2")
    first, last = data["Functional.linear.0.forward"], data["Functional.layer_norm.2.forward"]
    assert first["input_args"][0]["Max"] != last["output"][0]["Max"]
    assert first["input_args"][1]["shape"] == [16, 16], "the weight is an argument"


def test_a_graph_that_did_not_run_is_told_and_has_no_numbers(tmp_path, dumped):
    _, dump = dumped(tmp_path, "--net", "either", "--steps", 3, level="L0")
    even, odd = "Module.even.Linear.forward.0", "Module.odd.Linear.forward.0"
    for step in range(3):
        ran, rested = (even, odd) if step % 2 == 0 else (odd, even)
        data = records(dump, step)
        assert calls(data) == {ran: 1, rested: 0}
        assert data[ran]["input_args"][0]["Max"] == step
        assert data[rested]["input_args"] == [None] and data[rested]["output"] == [None]


def test_runs_of_a_step_are_counted_and_a_step_without_any_has_no_record(tmp_path, dumped):
    _, dump = dumped(tmp_path, "--steps", 3, "--passes", 4, "--skip-in", 1, level="L0")
    assert exported_steps(dump) == [0, 2], "step 1 is a step of its own, and empty"
    assert set(calls(records(dump, 2)).values()) == {4}


def test_a_step_that_is_not_wanted_is_forgotten_and_its_number_used_again(tmp_path, dumped):
    _, dump = dumped(tmp_path / "graph", "--steps", 3, "--off-in", 1, level="L0")
    _, whole = dumped(tmp_path / "whole", "--steps", 3, level="L0")
    assert exported_steps(dump) == [0, 1]
    assert not differences(records(dump, 1), records(whole, 2))
    assert set(calls(records(dump, 1)).values()) == {1}


def test_dump_enable_turns_the_probes_off_without_tracing_again(tmp_path, dumped):
    target = write_config(tmp_path / "off.json", tmp_path / "run" / "dump", level="L0", dump_enable=False)
    found, dump = dumped(tmp_path / "run", "--steps", 3, "--switch", target, level="L0", dump_enable=True)
    assert exported_steps(dump) == [0]
    assert found["graphs"] == 1


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_tensors_are_kept_as_they_were(tmp_path, device, dumped):
    arguments = ("--net", "wide", "--backend", "eager", "--device", device)
    found, dump = dumped(tmp_path, *arguments, task="tensor", level="L0")
    directory = rank_directory(dump, 1)
    name = "Module.narrow.Linear.forward.0.output.0.pt"
    kept = torch.load(directory / "dump_tensor_data" / name, map_location="cpu")
    data = records(dump, 1)
    assert data["Module.narrow.Linear.forward.0"]["output"][0]["data_name"] == name
    assert list(kept.shape) == [16, 16, 8] and len(found["outputs"]) == 2
    assert kept.max().item() == pytest.approx(data["Module.narrow.Linear.forward.0"]["output"][0]["Max"])
    assert len(list((directory / "dump_tensor_data").glob("*.pt"))) == len(dict(leaves(data)))


def test_a_device_is_not_waited_for_and_read_once_a_step(tmp_path, dumped):
    arguments = ("--net", "wide", "--backend", "eager", "--steps", 3)
    _, here = dumped(tmp_path / "cpu", *arguments, level="L0")
    found, there = dumped(tmp_path / "npu", *arguments, "--device", "npu", level="L0")
    off, _ = dumped(tmp_path / "off", *arguments, "--device", "npu", dumper="off")
    assert found["outputs"] == off["outputs"]
    for step in range(3):
        forward, whole = found["counters"][2 * step], found["counters"][2 * step + 1]
        without = off["counters"][2 * step]
        copies = [forward[key] for key in ("device_to_host", "waiting_device_to_host", "host_to_device")]
        assert (copies, forward["synchronizations"]) == ([0, 0, 0], 0)
        assert forward["allocations"] == without["allocations"], "a probe took memory of the device"
        assert whole["device_to_host"] + whole["waiting_device_to_host"] == 1
        ours, theirs = records(there, step), records(here, step)
        assert list(ours) == list(theirs)
        assert not differences(ours, theirs)


def test_checksums_are_of_the_bytes(tmp_path, dumped):
    _, dump = dumped(tmp_path, level="L0", section={"summary_mode": "md5"})
    data = records(dump, 0)
    first, second = (data[f"Module.layer.Linear.forward.{count}"] for count in (0, 1))
    assert first["output"][0]["md5"] != second["output"][0]["md5"]
    assert second["input_args"][0]["md5"] == data["Module.norm.LayerNorm.forward.0"]["output"][0]["md5"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_acl_save_writes_each_run(tmp_path, backend, dumped):
    saved = tmp_path / "deep" / "x.pt"
    found, _ = dumped(tmp_path / "graph", "--backend", backend, "--save", saved, dumper="off")
    tensor = torch.load(saved)
    assert list(tensor.shape) == [4, 16]
    assert (
        hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest() == found["outputs"][-1][0]
    )


CHECK = """
import torch
from msprobe import _agent
import msprobe.pytorch
slots = torch.zeros(64, dtype=torch.int64)
for x in (torch.randn(4, 8), torch.randn(8, 4, requires_grad=True).t(), torch.ones(3, dtype=torch.int64)):
    for check, said in torch.library.opcheck(torch.ops.msprobe.probe.default, (x, slots, 3, 0)).items():
        assert said == "SUCCESS", (check, said)
"""


def test_torch_finds_the_operator_as_its_schema_says():
    run([sys.executable, "-c", CHECK])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("level", "debug", "level is 'debug'; of a graph it should be one of L0, L1, mix"), ("task", "structure", "task")],
)
def test_what_a_graph_cannot_have_is_refused(tmp_path, field, value, said):
    config = {"task": "statistics", "level": "L0", field: value}
    path = write_config(tmp_path / "config.json", tmp_path / "dump", **config)
    done = run_program(
        PROGRAMS / "graph.py", "--config", path, "--out", tmp_path / "out.json", check=False, timeout=100
    )
    assert done.returncode != 0 and f"msprobe: {said}" in done.stderr and "Traceback" not in done.stderr

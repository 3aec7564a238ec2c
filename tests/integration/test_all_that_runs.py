"""Operators of torch.ops, indexing, the root, recomputation, threads, autocast, DTensors, asynchronous collectives."""

import collections
import json
import sys

import pytest
from harness.dumps import embedded_data_directory, entries, read_dump, write_config
from harness.processes import PROGRAMS, run


def names(data, *prefixes):
    return [name for name in data if name.startswith(prefixes)]


@pytest.mark.timeout(120)
def test_default_capture_names_what_the_lists_and_the_namespaces_name(dump_path, traced):
    traced("all_that_runs.py", level="mix", custom_op_namespaces=["probing"])
    data = entries(dump_path, 0)
    assert names(data, "probing", "aten", "Tensor.__getitem__", "Module.Net") == [
        *(f"probing.scale.{call}.forward" for call in range(3)),
        *(f"probing.scale.{call}.backward" for call in (2, 1, 0)),
    ]
    first = data["probing.scale.0.forward"]
    assert first["input_args"][0]["shape"] == [2, 4] and first["input_args"][1] == {"type": "float", "value": 2.0}
    assert data["probing.scale.1.forward"]["input_args"][0]["Max"] == first["output"][0]["Max"]
    construct = json.loads(next((dump_path / "step0").glob("*/construct.json")).read_text())
    assert construct["probing.scale.0.forward"] is None, "the root is not recorded, so its operators have no parent"


@pytest.mark.timeout(120)
def test_capture_all_records_indexing_every_operator_and_the_root(dump_path, traced, ask):
    traced("all_that_runs.py", level="mix", capture="all")
    data = entries(dump_path, 0)
    assert names(data, "aten", "Tensor.__getitem__", "Module.Net") == [
        "aten.add.0.forward",
        "Tensor.__getitem__.0.forward",
        "Module.Net.forward.0",
        "Module.Net.backward.0",
        "Tensor.__getitem__.0.backward",
        "aten.add.0.backward",
    ]
    construct = json.loads(next((dump_path / "step0").glob("*/construct.json")).read_text())
    assert construct["Module.inner.Linear.forward.0"] == "Module.Net.forward.0"
    assert construct["Tensor.__getitem__.0.forward"] == "Module.Net.forward.0"

    directory = embedded_data_directory(dump_path)
    (listed,) = ask("runs", data_dir=directory)
    rank = next((dump_path / "step0").iterdir()).name
    for step in (1, 2):
        records = ask("records", listed["run"], "--step", step, "--rank", rank, data_dir=directory)
        again = {record["name"]: record["recompute"] for record in records}
        assert again["Torch.cos.0.forward"] is False and again["Torch.cos.1.forward"] is True, f"step {step}"
        assert not any(value for name, value in again.items() if name.startswith("Torch.mul")), (
            "an autograd.Function's own"
        )


@pytest.mark.timeout(120)
def test_each_thread_numbers_its_own_calls(dump_path, traced):
    traced("all_that_runs.py", level="L1")
    first_values = collections.defaultdict(list)
    for name, value in entries(dump_path, 3).items():
        if name.startswith("Torch.mul."):
            thread, call = divmod(int(name.split(".")[2]), 1_000_000)
            first_values[thread].append((call, value["input_args"][0]["Max"]))
    assert sorted(first_values) == [0, 1, 2]
    for calls in first_values.values():
        start = min(value for _, value in calls)
        assert start % 1000 == 0 and sorted(calls) == [(call, start + call) for call in range(50)]


@pytest.mark.timeout(120)
def test_autocast_and_dtensors_are_recorded_as_they_are(dump_path, traced):
    done = traced("autocast_dtensor.py", level="mix", config_flag=None)
    assert "SAME True" in done.stdout.splitlines()
    data = entries(dump_path, 0)
    linear = data["Functional.linear.0.forward"]
    assert [leaf["dtype"] for leaf in linear["input_args"]] == ["torch.float32"] * 3
    assert linear["output"][0]["dtype"] == "torch.bfloat16"
    assert data["Module.0.Linear.parameters_grad.0"]["weight"][0]["dtype"] == "torch.float32"
    (doubled,) = data["Torch.add.0.forward"]["output"]
    assert (doubled["type"], doubled["shape"], doubled["Max"]) == ("torch.distributed.tensor.DTensor", [4, 2], 14.0)
    assert (doubled["device_mesh"], doubled["placements"]) == ([0], [{"Shard": {"dim": 0}}])


@pytest.mark.timeout(180)
def test_asynchronous_collectives_are_recorded_at_wait(tmp_path, dump_path):
    config = write_config(tmp_path / "config.json", dump_path, level="L1")
    run([sys.executable, PROGRAMS / "waiting.py", config], timeout=150)
    for rank in (0, 1):
        data = read_dump(dump_path / "step0" / f"rank{rank}")["data"]
        reduced = data["Distributed.all_reduce.0.forward"]
        assert reduced["input_args"][0]["Max"] == rank + 1 and reduced["output"][0]["Max"] == 3
        assert "output" not in data["Distributed.all_reduce.1.forward"], "nobody waited for it inside the step"
        (operation,) = data["Distributed.batch_isend_irecv.0.forward"]["output"][0]
        assert operation["tensor"]["Max"] == 7
        described = {key: value for key, value in operation.items() if key not in ("tensor", "group_id")}
        op = "isend" if rank else "irecv"
        assert described == {"class_type": "torch.distributed.P2POp", "op": op, "peer": 1 - rank, "tag": 0}
        assert isinstance(operation["group_id"], str)
    received = read_dump(dump_path / "step0" / "rank0")["data"]["Distributed.irecv.0.forward"]
    assert received["output"][0]["Max"] == 9


@pytest.mark.timeout(120)
@pytest.mark.parametrize("switch", [True, False])
def test_the_gradient_of_a_linears_weight_is_there_when_asked_for(dump_path, traced, switch):
    done = traced("all_that_runs.py", level="L1", linear_weight_grad=switch)
    expected = [tuple(map(float, line.split()[1:])) for line in done.stdout.splitlines() if line.startswith("WEIGHT")]
    assert len(expected) == 2
    data = entries(dump_path, 4)
    for call, (highest, lowest) in enumerate(expected):
        record = data[f"Functional.linear.{call}.backward"]
        assert set(record) == {"input", "output"} | ({"weight_grad"} if switch else set())
        if switch:
            (gradient,) = record["weight_grad"]
            assert (gradient["shape"], gradient["Max"], gradient["Min"]) == ([3, 4], highest, lowest)

"""Which record made an input: by hand, where memory comes back, in inference mode, and by the values themselves."""

import pathlib
import re
import sys
from collections import Counter

import pytest
import torch
from harness.dumps import embedded_data_directory, rank_directory, write_config
from harness.processes import run, wait_for_servers_to_leave
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer

PROGRAM = pathlib.Path(__file__).parent / "programs" / "edges.py"
BY_HAND, MEMORY_COMES_BACK, INFERENCE, FIRST_TRAINING, SECOND_TRAINING = range(5)
INPUT = re.compile(r"\.(input|kwargs)\.")
OUTPUT = re.compile(r"\.output\.|\.parameters_grad\.")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What the program printed, its dump_path, and the records of each step in order."""
    directory = tmp_path_factory.mktemp("edges")
    dump_path = directory / "dump"
    config = write_config(directory / "config.json", dump_path, task="tensor", level="mix")
    try:
        done = run([sys.executable, PROGRAM, "--config", config], timeout=180)
        data = embedded_data_directory(dump_path)
        with EmbeddedServer(data) as server, Client(server.address) as client:
            (name,) = (each.run for each in client.runs())
            steps = [list(client.records(name, step=each.step, rank=each.rank)) for each in client.steps(name)]
        yield done.stdout, dump_path, steps
    finally:
        wait_for_servers_to_leave(dump_path)


def edges(records, name):
    """The edges of a record's inputs, in short."""
    (record,) = (each for each in records if each.full_name == name)
    return [str(stats.edge) for place, stats in record.tensors() if INPUT.search(place)]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Torch.sigmoid.0", ["outside"]),
        ("Torch.matmul.0", ["Torch.sigmoid.0.forward.output.0", "outside"]),
        ("Torch.exp.0", ["Torch.matmul.0.forward.output.0 (view)"]),
        ("Torch.tanh.0", ["Tensor.t.0.forward.output.0"]),
        ("Tensor.t.0", ["Torch.matmul.0.forward.output.0"]),
        ("Torch.square.0", ["Torch.max.0.forward.output.1"]),
        ("Tensor.add_.0", ["Torch.matmul.0.forward.output.0"]),
        ("Torch.sin.0", ["Tensor.add_.0.forward.output.0"]),
        ("Torch.abs.0", ["Tensor.mul_.0.forward.output.0 (view)"]),
        ("Torch.neg.0", ["Tensor.add_.0.forward.output.0 (changed)"]),
        ("Torch.floor.0", ["Torch.ceil.0.forward.output.0 (changed)"]),
        ("Torch.log.0", ["Torch.sqrt.0.forward.output.0"]),
        ("Functional.relu.0", ["Module.identity.Identity.forward.0.output.0"]),
        ("Torch.erf.0", ["outside"]),
    ],
)
def test_edges_of_a_step_by_hand(ran, name, wanted):
    assert edges(ran[2][BY_HAND], f"{name}.forward") == wanted


def test_a_call_in_a_module_is_the_producer_of_what_the_module_gives_out(ran):
    records = ran[2][BY_HAND]
    assert edges(records, "Module.identity.Identity.forward.0") == ["Torch.relu.0.forward.output.0"]
    assert edges(records, "Module.inner.Inner.forward.0") == ["Torch.sigmoid.0.forward.output.0"]


def test_memory_that_comes_back_is_not_the_tensor_that_was_there(ran):
    printed, _, steps = ran
    assert int(re.search(r"ADDRESSES (\d+)", printed)[1]) < 140, "addresses do come back"
    records = steps[MEMORY_COMES_BACK]
    for i in range(150):
        assert edges(records, f"Torch.trunc.{i}.forward") == [f"Torch.round.{i}.forward.output.0"]
        assert edges(records, f"Torch.square.{i}.forward") == ["outside"]
        assert edges(records, f"Torch.frac.{i}.forward") in (["outside"], [f"Tensor.fill_.{i}.forward.output.0"])


def test_inference_tensors_say_that_nobody_counts_their_writes(ran):
    records = ran[2][INFERENCE]
    assert edges(records, "Torch.tanh.0.forward") == ["Torch.sigmoid.0.forward.output.0 (unversioned)"]
    assert edges(records, "Functional.relu.0.forward") == ["Module.identity.Identity.forward.0.output.0 (unversioned)"]


@pytest.fixture(scope="module")
def trained(ran):
    """Of a training step with checkpointing: [(place, edge, value)] of inputs, {place: value} of outputs, and {place:
    an output of an earlier record with the same bytes} of inputs of API calls, where these bytes are no common ones."""
    _, dump_path, steps = ran
    folder = rank_directory(dump_path, SECOND_TRAINING) / "dump_tensor_data"

    def value(place):
        path = folder / f"{place}.pt"
        return torch.load(path) if path.exists() else None

    def content(tensor):
        if tensor is None or tensor.unique().numel() < 16:
            return None
        return tensor.contiguous().view(torch.uint8).numpy().tobytes()

    inputs, outputs, made, earlier = [], {}, {}, {}
    for record in steps[SECOND_TRAINING]:
        tensors = [(place, stats, value(place)) for place, stats in record.tensors()]
        for place, stats, tensor in tensors:
            if INPUT.search(place):
                inputs.append((place, stats.edge, tensor))
                if record.kind == "api" and content(tensor) in made:
                    earlier[place] = made[content(tensor)]
        for place, _, tensor in tensors:
            if OUTPUT.search(place):
                outputs[place] = tensor
                if content(tensor) is not None:
                    made[content(tensor)] = place
    return inputs, outputs, earlier


def test_the_values_agree_with_every_edge(trained):
    inputs, outputs, _ = trained
    checked = Counter()
    for place, edge, value in inputs:
        if edge is None or not edge.tensor:
            continue
        made = outputs.get(edge.tensor)
        if value is None or made is None:
            continue
        checked[edge.kind] += 1
        if edge.kind == "same":
            assert torch.equal(value, made), (place, edge)
        elif edge.kind == "view":
            assert torch.isin(value, made).all(), (place, edge)
    assert checked["same"] > 300 and checked["view"] > 30, checked


def test_nothing_that_a_record_made_is_said_to_come_from_outside(trained):
    inputs, _, earlier = trained
    assert all(edge is not None for _, edge, _ in inputs), "of each it is known"
    assert len(earlier) > 200
    wrong = [(place, earlier[place]) for place, edge, _ in inputs if edge.kind == "outside" and place in earlier]
    # What autograd adds up from several is a tensor of its own; a module's gradient shows the same sum.
    wrong = [(place, found) for place, found in wrong if not re.match(r"Module\..*\.backward\.", found)]
    assert not wrong, f"{len(wrong)} of {len(inputs)}: {wrong[:5]}"


def test_steps_that_repeat_have_the_same_edges(ran):
    def told(step):
        return {place: str(stats.edge) for record in ran[2][step] for place, stats in record.tensors()}

    first, second = told(FIRST_TRAINING), told(SECOND_TRAINING)
    different = {place: (first.get(place), edge) for place, edge in second.items() if first.get(place) != edge}
    assert len(different) < len(second) / 50, different

"""Edges of two ranks: across DistributedDataParallel's buckets, whose reduction leaves no record, and of collectives.

What the program logged of storages and versions, and the values, say what is right."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from harness.dumps import embedded_data_directory, write_config
from harness.edges import INPUT, Step, agree_with_storages, agree_with_values
from harness.processes import PROGRAMS, launched, wait_for_servers_to_leave
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer

RANKS = 2
STEPS = {0: "copied gradients", 1: "gradients in their buckets"}
PARAMETER = re.compile(r"Module\.(.+)\.\w+\.parameters_grad\.0\.(\w+)")


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """By rank and kind of buckets: the step, and the memory of each gradient after its backward pass."""
    directory = tmp_path_factory.mktemp("ranks")
    dump_path = directory / "dump"
    config = write_config(directory / "config.json", dump_path, task="tensor", level="mix")
    command = [sys.executable, PROGRAMS / "edges_of_ranks.py", config, directory / "log"]
    try:
        with launched(RANKS, command, directory, "said") as programs:
            for program in programs:
                program.finish(timeout=120)
        wait_for_servers_to_leave(dump_path)
        with EmbeddedServer(embedded_data_directory(dump_path)) as server, Client(server.address) as client:
            (run,) = (each.run for each in client.runs())
            found = {}
            for rank in range(RANKS):
                logs = json.loads(Path(f"{directory / 'log'}.rank{rank}").read_text())
                for number, kind in STEPS.items():
                    records = list(client.records(run, step=number, rank=rank))
                    folder = dump_path / f"step{number}" / f"rank{rank}" / "dump_tensor_data"
                    step = Step(records, folder, logs[number]["calls"])
                    found[f"rank {rank}, {kind}"] = step, logs[number]["gradients"]
            yield found
    finally:
        wait_for_servers_to_leave(dump_path)


def test_no_edge_is_wrong_by_values_and_storages(steps):
    assert len(steps) == RANKS * len(STEPS)
    for model, (step, _) in steps.items():
        checked = agree_with_values(model, step)
        assert checked["same"] > 40 and checked["unversioned"] >= 12, (model, checked)
        assert agree_with_storages(model, step) >= 10, model


def test_what_takes_a_gradient_names_the_parameter_and_does_not_say_that_it_is_the_same(steps):
    """Clipping reads all gradients in order. The reducer wrote the averages, in its buckets or in the copies."""
    for model, (step, gradients) in steps.items():
        norms = [each for each in step.records if each.full_name.startswith("Torch.vector_norm.")][: len(gradients)]
        assert len(norms) == len(gradients) == 6, model
        for record, (parameter, memory) in zip(norms, gradients.items(), strict=True):
            ((place, edge),) = ((place, stats.edge) for place, stats in record.tensors() if INPUT.search(place))
            found = PARAMETER.fullmatch(edge.tensor)
            assert found and f"{found[1]}.{found[2]}" == parameter, (model, parameter, edge)
            averaged, own = step.value(place), step.value(edge.tensor)
            assert list(averaged.shape) == memory[2][1] and not torch.equal(averaged, own), "the other rank's is in it"
            assert edge.kind == "unversioned", (model, parameter, edge)


def test_a_backward_pass_of_buckets_is_one_chain(steps):
    """Each layer's gradient comes from the layer after it, whatever the reducer did in between."""
    for model, (step, _) in steps.items():
        edges = {place: str(edge) for place, edge in step.inputs() if ".backward." in place}
        for taker, giver in (("Torch.tanh.0", "Functional.linear.2"), ("Functional.gelu.0", "Functional.linear.1")):
            assert edges[f"{taker}.backward.input.0"] == f"{giver}.backward.output.1", (model, edges)
        assert edges["Functional.linear.1.backward.input.0"] == "Torch.tanh.0.backward.output.0", (model, edges)


def test_what_a_collective_gave_comes_from_it(steps):
    wanted = {
        "Torch.sin.0": "Distributed.all_reduce.0.forward.output.0",
        "Torch.cos.0": "Distributed.all_gather.0.forward.output.0.1",
        "Tensor.abs.0": "Distributed.all_reduce.1.forward.output.0",
        "Torch.erf.0": "Distributed.broadcast.0.forward.output.0",
    }
    for model, (step, _) in steps.items():
        edges = dict(step.inputs())
        found = {call: edges[f"{call}.forward.input.0"].tensor for call in wanted}
        assert found == wanted, model

"""Edges of models that train, against their values and against a log of storages kept by the program itself.

Tied weights, gradient accumulation, both kinds of checkpointing, memory that views write, a compiled part, three
optimizers, and DistributedDataParallel."""

import json
import pathlib
import re
import sys
from collections import Counter

import pytest
import torch
from harness.dumps import embedded_data_directory, rank_directory, write_config
from harness.edges import INPUT, Step, agree_with_storages, agree_with_values
from harness.processes import run, wait_for_servers_to_leave
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer

PROGRAM = pathlib.Path(__file__).parent / "programs" / "edges_of_models.py"
OUTPUT = re.compile(r"\.output\.|\.parameters_grad\.")
FEW = 12  # different elements: fewer are no proof that two tensors are one


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    directory = tmp_path_factory.mktemp("edges")
    dump_path = directory / "dump"
    config = write_config(directory / "config.json", dump_path, task="tensor", level="mix")
    try:
        run([sys.executable, PROGRAM, "--config", config, "--log", directory / "log.json"], timeout=240)
        with EmbeddedServer(embedded_data_directory(dump_path)) as server, Client(server.address) as client:
            (name,) = (each.run for each in client.runs())
            ranks = {each.step: each.rank for each in client.steps(name)}
            logs = json.loads((directory / "log.json").read_text())
            yield {
                model: Step(
                    list(client.records(name, step=number, rank=ranks[number])),
                    rank_directory(dump_path, number) / "dump_tensor_data",
                    log,
                )
                for number, (model, log) in enumerate(logs.items())
            }
    finally:
        wait_for_servers_to_leave(dump_path)


def content(tensor):
    if tensor is None or tensor.unique().numel() < FEW:
        return None
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def test_no_value_contradicts_an_edge(steps):
    checked = sum((agree_with_values(model, step) for model, step in steps.items()), Counter())
    assert checked["same"] > 1000 and checked["view"] > 150 and checked["sum"] > 50, checked


def test_the_storages_that_the_program_logged_agree_with_every_edge(steps):
    checked = sum(agree_with_storages(model, step) for model, step in steps.items())
    assert checked > 30, checked


def test_what_a_record_made_is_never_from_outside(steps):
    wrong = []
    for model, step in steps.items():
        made = {}
        for record in step.records:
            tensors = [(place, stats, step.value(place)) for place, stats in record.tensors()]
            for place, stats, value in tensors:
                known = made.get(content(value)) if INPUT.search(place) else None
                # A compiled part and a buffer that views fill write what they were given to memory of their own.
                if known is not None and stats.edge.kind == "outside" and model not in ("views", "distributed"):
                    wrong.append((model, place, known))
            for place, _, value in tensors:
                if OUTPUT.search(place) and content(value) is not None:
                    made[content(value)] = place
    assert not [each for each in wrong if ".backward." not in each[1]], wrong[:5]


def test_a_gradient_that_autograd_adds_up_is_a_sum(steps):
    """The input of a layer that has a residual connection: the next layer's backward gives the whole sum."""
    for model in ("llama", "gpt2"):
        step = steps[model]
        sums = [(place, edge) for place, edge in step.inputs() if edge.kind == "sum"]
        assert len(sums) > 8, (model, sums)
        whole = [place for place, edge in sums if torch.equal(step.value(place), step.value(edge.tensor))]
        assert len(whole) >= len(sums) // 3, (model, sums)
        assert all(".backward." in place and ".backward." in edge.record for place, edge in sums)

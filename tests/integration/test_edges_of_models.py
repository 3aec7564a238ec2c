"""Edges of models that train, against their values and against a log of storages kept by the program itself.

Tied weights, gradient accumulation, both kinds of checkpointing, memory that views write, a compiled part, three
optimizers, and DistributedDataParallel."""

import json
import pathlib
import re
import sys
from collections import Counter, defaultdict

import pytest
import torch
from harness.dumps import embedded_data_directory, rank_directory, write_config
from harness.processes import run, wait_for_servers_to_leave
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer

PROGRAM = pathlib.Path(__file__).parent / "programs" / "edges_of_models.py"
INPUT = re.compile(r"\.(input|kwargs)\.")
OUTPUT = re.compile(r"\.output\.|\.parameters_grad\.")
FORWARD = re.compile(r"^((?:Functional|Torch|Tensor)\.[a-z_0-9]*[a-z])\.(\d+)\.forward$")
FEW = 12  # different elements: fewer are no proof that two tensors are one


class Step:
    """A step's records in order, the value of each tensor, and what the program logged."""

    def __init__(self, records, folder, log):
        self.records = records
        self.log = log
        self._folder = folder
        self._values = {}

    def value(self, place):
        if place not in self._values:
            path = self._folder / f"{place}.pt"
            self._values[place] = torch.load(path) if path.exists() else None
        return self._values[place]

    def inputs(self):
        for record in self.records:
            for place, stats in record.tensors():
                if INPUT.search(place):
                    yield place, stats.edge


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
    checked = Counter()
    for model, step in steps.items():
        for place, edge in step.inputs():
            assert edge is not None, (model, place)
            value, made = step.value(place), step.value(edge.tensor) if edge.tensor else None
            if value is None or made is None:
                continue
            checked[edge.kind] += 1
            if edge.kind == "same":
                assert torch.equal(value, made), (model, place, edge)
            elif edge.kind == "view":
                assert torch.isin(value, made).all(), (model, place, edge)
            elif edge.kind == "sum":
                assert value.shape == made.shape, (model, place, edge)
    assert checked["same"] > 1000 and checked["view"] > 150 and checked["sum"] > 50, checked


def test_the_storages_that_the_program_logged_agree_with_every_edge(steps):
    """Forward calls that both saw alike. By the log, the producer is a call that gave out the input's very storage,
    place, shape and version."""
    checked = 0
    for model, step in steps.items():
        counts = Counter(match[1] for each in step.records if (match := FORWARD.match(each.full_name)))
        logged = defaultdict(list)
        makers = defaultdict(set)  # storage, version, place -> calls
        for name, taken, made in step.log:
            call = f"{name}.{len(logged[name])}.forward"
            logged[name].append([makers.get(json.dumps(each), set()).copy() for each in taken])
            for each in made:
                makers[json.dumps(each)].add(call)
        alike = {name for name, calls in logged.items() if counts[name] == len(calls)}
        for record in step.records:
            match = FORWARD.match(record.full_name)
            if match is None or match[1] not in alike:
                continue
            expected = logged[match[1]][int(match[2])]
            edges = [stats.edge for place, stats in record.tensors() if INPUT.search(place)]
            if len(edges) != len(expected):
                continue
            for edge, logged_calls in zip(edges, expected, strict=True):
                calls = {call for call in logged_calls if call.rsplit(".", 2)[0] in alike}
                maker = FORWARD.match(edge.record) if edge.record else None
                if not calls or (maker is not None and maker[1] not in alike):
                    continue
                checked += 1
                assert edge.kind in ("same", "changed", "view"), (model, record.full_name, edge, calls)
                if maker is not None and edge.kind == "same":
                    assert edge.record in calls, (model, record.full_name, edge, calls)
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

"""Edges of one step against the values of its tensors, and against what the program logged of storages and versions."""

import json
import re
from collections import Counter, defaultdict

import torch

INPUT = re.compile(r"\.(input|kwargs)\.")
FORWARD = re.compile(r"^((?:Functional|Torch|Tensor)\.[a-z_0-9]*[a-z])\.(\d+)\.forward$")


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


def agree_with_values(model, step):
    """No value contradicts an edge. How many edges of each kind were checked."""
    checked = Counter()
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
    return checked


def agree_with_storages(model, step):
    """Forward calls that the agent and the program's log saw alike. By the log, the producer is a call that gave out
    the input's very storage, place, shape and version. How many inputs were checked."""
    checked = 0
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
    return checked

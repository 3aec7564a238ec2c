"""Which record of a PyTorch run is which call of the ONNX graph that was exported from it.

Modules have partners by name. Calls have partners by edge: what they take was made by partners. A call without such an
edge (the run has none, or its inputs come from outside) takes the next of its module with the operator's name. Where an
exporter folded a normalization into the call before it, the node's partner is the normalization, as its values are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msprobe_client.model import Record, TensorStats
from msprobe_client.offline.graph import OnnxCall, OnnxGraph, OnnxModule

How: TypeAlias = Literal["name", "edge", "order"]
_MODULE = re.compile(r"Module\.(?P<name>.+)\.(?P<kind>[^.]+)\.forward\.(?P<count>\d+)")
_API = re.compile(r"[^.]+\.(?P<word>.+)\.\d+\.forward")
# Of these a run shows what is behind them: their results share memory with what they take, as its edges do.
_VIEWS = frozenset(
    (
        *("alias", "chunk", "contiguous", "detach", "expand", "flatten", "identity", "narrow", "permute", "reshape"),
        *("select", "slice", "split", "splitwithsizes", "squeeze", "transpose", "unbind", "unflatten", "unsqueeze"),
        *("unsafeview", "view"),
    )
)
_NORMALIZATION = "batchnorm"  # what exporters fold
# Of operators that have other names among the exporter's: theirs, then PyTorch's.
_WORDS = {
    "mm": "matmul",
    "bmm": "matmul",
    "addmm": "linear",
    "gemm": "linear",
    "conv1d": "conv",
    "conv2d": "conv",
    "conv3d": "conv",
    "t": "transpose",
    "permute": "transpose",
}


@dataclass(frozen=True, slots=True)
class Partner:
    """A record and the values that stand in its places: row's name without the record's -> value."""

    record: str
    node: str
    operator: str
    how: How
    last: int  # place in the graph of the call, or of a module's last
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    begins: str = ""  # the record of the first call, where the node stands for several; `record` is the last


@dataclass(slots=True)
class _Candidate:
    record: Record
    word: str
    module: str
    inputs: dict[str, TensorStats]
    outputs: dict[str, TensorStats]
    producers: set[str] = field(default_factory=set)
    taken: bool = False


def partners(graph: OnnxGraph, records: Iterable[Record], shapes: Mapping[str, tuple[int, ...]]) -> list[Partner]:
    """In order of the graph; a module after its calls. shapes: of values."""
    found: list[Partner] = []
    apis: list[_Candidate] = []
    modules: dict[tuple[str, int], Record] = {}
    for record in records:
        if record.direction != "forward":
            continue
        if record.kind == "module" and (match := _MODULE.fullmatch(record.full_name)):
            modules[match["name"], int(match["count"])] = record
        elif record.kind == "api" and (match := _API.fullmatch(record.full_name)):
            apis.append(_candidate(record, match["word"]))
    matching = _Calls(apis, shapes, graph.calls)
    for at, call in enumerate(graph.calls):
        if (partner := matching.partner_of(at, call)) is not None:
            found.append(partner)
    for module in graph.modules:
        called = modules.get((module.name, module.count))
        if called is None:
            continue
        inputs = _placed(called, "input", module.inputs, shapes)
        outputs = _placed(called, "output", matching.outside_of(module), shapes)
        if outputs:
            kind = called.full_name.split(".")[-3]
            found.append(Partner(called.full_name, module.name, kind, "name", module.last, inputs, outputs))
    return sorted(found, key=lambda partner: (partner.last, partner.how == "name", -partner.record.count(".")))


class _Calls:
    def __init__(
        self, candidates: list[_Candidate], shapes: Mapping[str, tuple[int, ...]], calls: Iterable[OnnxCall]
    ) -> None:
        self._shapes = shapes
        self._words: set[str] = set()
        self._words_behind: dict[str, set[str]] = {}  # value -> of the calls that take it
        for call in calls:
            self._words.add(_word(call.operator))
            for value in call.inputs:
                self._words_behind.setdefault(value, set()).add(_word(call.operator))
        self._folded: dict[str, str] = {}  # value -> the module of the normalization that made it
        self._by_word: dict[str, list[_Candidate]] = {}
        self._names: dict[str, str] = {}  # value -> the run's tensor
        self._behind: dict[str, set[str]] = {}  # value of a view without a partner -> the tensors that it shows
        self._known: set[str] = set()
        self._takers: dict[str, list[_Candidate]] = {}
        self._in_order = sorted(candidates, key=lambda each: each.record.ordinal)
        for candidate in candidates:
            self._by_word.setdefault(candidate.word, []).append(candidate)
            for producer in candidate.producers:
                self._takers.setdefault(producer, []).append(candidate)

    def partner_of(self, at: int, call: OnnxCall) -> Partner | None:
        made = {name for value in call.inputs for name in self._shown(value)}
        fitting = [
            each for each in self._near(made) if self._fits(each, call) and not (each.producers & self._known) - made
        ]
        word = _word(call.operator)
        named = [each for each in fitting if each.word == word]
        how: How = "edge"
        if any(each.producers for each in named or fitting):
            chosen = next(
                iter(named), self._of_another_name(word, [each for each in fitting if each.producers == made])
            )
        else:
            how = "order"
            # What takes a partner's output is not this call, whose inputs no partner made.
            free = (each for each in self._by_word.get(word, []) if not each.producers & self._known)
            chosen = next((each for each in free if self._fits(each, call)), None)
        if chosen is None:
            if word in _VIEWS:
                self._behind.update(dict.fromkeys(call.outputs, made))
            return None
        chosen.taken = True
        first, inputs = chosen, dict(self._inputs(chosen, call))
        if (norm := self._folded_into(call, chosen)) is not None:
            chosen, inputs, norm.taken = norm, {}, True
            self._folded[call.outputs[0]] = norm.module
        outputs = dict(zip(chosen.outputs, call.outputs, strict=False))
        for name, value in outputs.items():
            self._names[value] = f"{chosen.record.full_name}.{name}"
            self._known.add(self._names[value])
        begins = "" if first is chosen else first.record.full_name
        return Partner(chosen.record.full_name, call.node, call.operator, how, at, inputs, outputs, begins)

    def outside_of(self, module: OnnxModule) -> list[str]:
        """What leaves a module, without values of normalizations that the run has beside it."""
        return [
            value
            for value in module.outputs
            if value not in self._folded or f"{self._folded[value]}.".startswith(f"{module.name}.")
        ]

    def _folded_into(self, call: OnnxCall, chosen: _Candidate) -> _Candidate | None:
        """The normalization that alone takes the record's output, where the graph has none behind the call."""
        name = f"{chosen.record.full_name}.{next(iter(chosen.outputs))}"
        takers = self._takers.get(name, [])
        if not self._takers:  # a dump has no edges: the call behind it
            takers = [each for each in self._in_order if each.record.ordinal > chosen.record.ordinal][:1]
        if len(takers) != 1 or _NORMALIZATION not in takers[0].word or takers[0].taken or not takers[0].outputs:
            return None
        if any(_NORMALIZATION in word for word in self._words_behind.get(call.outputs[0], ())):
            return None
        shape = tuple(next(iter(takers[0].outputs.values())).shape)
        return takers[0] if shape == self._shapes.get(call.outputs[0]) else None

    def _of_another_name(self, word: str, exact: list[_Candidate]) -> _Candidate | None:
        """The only one that takes the same, where neither side has the other's name for anything else."""
        foreign = word not in self._by_word and word not in _VIEWS
        return exact[0] if foreign and len(exact) == 1 and exact[0].word not in self._words else None

    def _shown(self, value: str) -> set[str]:
        return {self._names[value]} if value in self._names else self._behind.get(value, set())

    def _near(self, made: set[str]) -> list[_Candidate]:
        found = {id(each): each for tensor in sorted(made) for each in self._takers.get(tensor, [])}
        return sorted(found.values(), key=lambda each: each.record.ordinal)

    def _fits(self, candidate: _Candidate, call: OnnxCall) -> bool:
        if candidate.taken or not candidate.outputs:
            return False
        if candidate.module and call.module and candidate.module != call.module.partition("@")[0]:
            return False
        first = next(iter(candidate.outputs.values()))
        return tuple(first.shape) == self._shapes.get(call.outputs[0])

    def _inputs(self, candidate: _Candidate, call: OnnxCall) -> Iterator[tuple[str, str]]:
        shown = [(name, value) for value in call.inputs for name in self._shown(value)]
        several = Counter(name for name, _ in shown)  # parts of one tensor: which is which is not known
        values = {name: value for name, value in shown if several[name] == 1}
        for name, stats in candidate.inputs.items():
            value = values.get(stats.edge.tensor) if stats.edge is not None else None
            if value is not None and self._shapes.get(value) == tuple(stats.shape):
                yield name, value


def _candidate(record: Record, word: str) -> _Candidate:
    rows: dict[str, dict[str, TensorStats]] = {"input": {}, "kwargs": {}, "output": {}}
    for full, stats in record.tensors():
        place = full.removeprefix(f"{record.full_name}.")
        rows.setdefault(place.partition(".")[0], {})[place] = stats
    parent = _MODULE.fullmatch(record.parent or "")
    inputs = rows["input"] | rows["kwargs"]
    made = {stats.edge.tensor for stats in inputs.values() if stats.edge is not None and stats.edge.tensor}
    return _Candidate(record, _plain(word), parent["name"] if parent else "", inputs, rows["output"], made)


def _placed(record: Record, word: str, values: list[str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """The record's rows of word, each with the next value of its shape."""
    left, found = list(values), {}
    for full, stats in record.tensors():
        place = full.removeprefix(f"{record.full_name}.")
        if place.partition(".")[0] in (word, "kwargs" if word == "input" else word):
            value = next((each for each in left if shapes.get(each) == tuple(stats.shape)), None)
            if value is not None:
                left.remove(value)
                found[place] = value
    return found


def _word(operator: str) -> str:
    """linear, of aten.linear.default; matmul, of MatMul. ONNX's Slice is no view: its steps may be negative (flip)."""
    if operator == "Slice":
        return "onnxslice"
    parts = operator.split(".")
    return _plain(parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1])


def _plain(word: str) -> str:
    word = word.strip("_").replace("_", "").lower()
    if word in ("radd", "iadd", "rmul", "imul", "rsub", "isub", "rmatmul", "truediv", "rtruediv"):
        word = word.removeprefix("r").removeprefix("i").replace("true", "")
    return _WORDS.get(word, word)


__all__ = ["How", "Partner", "partners"]

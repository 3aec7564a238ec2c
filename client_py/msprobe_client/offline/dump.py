"""Values of an ONNX graph as a dump directory, which import makes a run of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msprobe_client.offline.graph import OnnxGraph
from msprobe_client.offline.partners import Partner

_TORCH = {"float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"}


def write_dump(directory: Path, graph: OnnxGraph, values: Mapping[str, Any], found: Iterable[Partner]) -> None:
    """Writes dump.json and tensors. A call without a partner is Onnx.{operator}.{n}.forward."""
    import numpy

    tensors = directory / "dump_tensor_data"
    tensors.mkdir(parents=True)
    writer = _Writer(values, tensors, numpy)
    met: dict[int, list[Partner]] = {}
    for partner in found:
        met.setdefault(partner.last, []).append(partner)
    counts: dict[str, int] = {}
    for at, call in enumerate(graph.calls):
        of_call = [partner for partner in met.get(at, []) if partner.how != "name"]
        if not of_call:
            word = call.operator.split(".")[1] if call.operator.startswith("aten.") else call.operator
            count = counts[word] = counts.get(word, -1) + 1
            places = {f"input.{index}": value for index, value in enumerate(call.inputs)}
            writer.add(f"Onnx.{word}.{count}.forward", places, {f"output.{i}": v for i, v in enumerate(call.outputs)})
        for partner in met.get(at, []):
            writer.add(partner.record, partner.inputs, partner.outputs)
    dump = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": writer.records}
    (directory / "dump.json").write_text(json.dumps(dump))


class _Leaf(dict[str, Any]):
    """A tensor's description."""


def _nested(node: Any) -> Any:
    """Lists where all keys are numbers, with null where there is no value."""
    if not isinstance(node, dict) or isinstance(node, _Leaf):
        return node
    if all(key.isdecimal() for key in node):
        return [
            _nested(node[str(at)]) if str(at) in node else None for at in range(max(map(int, node), default=-1) + 1)
        ]
    return {key: _nested(value) for key, value in node.items()}


class _Writer:
    def __init__(self, values: Mapping[str, Any], tensors: Path, numpy: Any) -> None:
        self.records: dict[str, Any] = {}
        self._values, self._tensors, self._numpy = values, tensors, numpy

    def add(self, record: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        tree: dict[str, Any] = {"input": {}, "kwargs": {}, "output": {}}
        for place, value in {**inputs, **outputs}.items():
            *path, last = place.split(".")
            node = tree
            for part in path:
                node = node.setdefault(part, {})
            node[last] = self._leaf(f"{record}.{place}", self._values[value])
        self.records[record] = {
            "input_args": _nested(tree["input"]) or [],
            "input_kwargs": {key: _nested(value) for key, value in tree["kwargs"].items()},
            "output": _nested(tree["output"]),
        }

    def _leaf(self, name: str, array: Any) -> _Leaf:
        numpy = self._numpy
        file = f"{name.replace('/', '_')}.npy"
        numpy.save(self._tensors / file, array)
        leaf = {
            "type": "torch.Tensor",
            "dtype": f"torch.{array.dtype.name}" if array.dtype.name in _TORCH else array.dtype.name,
            "shape": list(array.shape),
        }
        numbers: dict[str, Any] = dict.fromkeys(("Max", "Min", "Mean", "Norm"))
        if array.size and array.dtype.kind in "iuf":
            wide = array.astype(numpy.float64)
            numbers["Max"], numbers["Min"] = array.max().item(), array.min().item()
            if array.dtype.kind == "f":
                numbers["Mean"], numbers["Norm"] = float(wide.mean()), math.sqrt(float((wide * wide).sum()))
        return _Leaf(leaf | numbers | {"requires_grad": False, "data_name": file})

"""Runs an ONNX graph under onnxruntime on the CPU, with every value between its calls as an output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.given_file import opened
from msprobe_client.offline.graph import EXTRA, OnnxGraph
from msprobe_client.output.extras import extra
from msprobe_client.scratch import scratch_directory

_LARGE = 1 << 30  # protobuf ends at 2 GiB; above this, weights lie beside the model


def values_of(graph: OnnxGraph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Value -> array of numpy, of the inputs and of all that leaves a call. Optimizations are off: a fused node would
    compute other bits than the graph says, and hide what is inside.
    """
    onnx, runtime = extra("onnx", EXTRA), extra("onnxruntime", EXTRA)
    surgery = onnx.ModelProto()
    surgery.CopyFrom(graph.model)
    there = {each.name for each in surgery.graph.output}
    surgery.graph.output.extend(onnx.ValueInfoProto(name=name) for name in graph.values() if name not in there)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    with scratch_directory() as scratch:
        path = Path(scratch) / "model.onnx"
        onnx.save_model(surgery, str(path), save_as_external_data=surgery.ByteSize() > _LARGE, location="weights")
        try:
            session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own classes
            raise DataError(f"onnxruntime does not take {graph.path}: {_first_line(error)}") from None
        checked = {each.name: _checked(each, feeds) for each in session.get_inputs() if each.name in graph.inputs}
        for each in session.get_outputs():
            if not _is_tensor(each):
                raise DataError(
                    f"{graph.path}: {each.name} is {each.type}; a model is run whose values are tensors of numbers"
                )
        wanted = graph.values()
        try:
            arrays = session.run(wanted, checked)
        except Exception as error:  # onnxruntime's own classes
            raise DataError(f"onnxruntime cannot run {graph.path}: {_first_line(error)}") from None
    return checked | dict(zip(wanted, arrays, strict=True))


def inputs_of(texts: list[str]) -> dict[str, Any]:
    """Of NAME=FILE.npy."""
    numpy = extra("numpy", EXTRA)
    found = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not name or not equals or not file.endswith(".npy"):
            raise InvalidArgument(f"--input {text!r} is not understood; write NAME=FILE.npy, as in x=x.npy")
        try:
            with opened(file) as source:
                found[name] = numpy.load(source, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{file} is no .npy file that can be read: {error}") from None
    return found


def _is_tensor(value: Any) -> bool:
    return str(value.type).startswith("tensor(") and value.type != "tensor(string)"


def _checked(wanted: Any, feeds: Mapping[str, Any]) -> Any:
    if not _is_tensor(wanted):
        raise InvalidArgument(f"the model takes {wanted.name}, {wanted.type}; only tensors of numbers can be given")
    if wanted.name not in feeds:
        raise InvalidArgument(
            f"the model takes {wanted.name}, {wanted.type} of {wanted.shape}; give --input {wanted.name}=FILE.npy"
        )
    return feeds[wanted.name]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

"""python mindspore_process.py DEVICE: runs calls of MindSpore that come on stdin, and answers on stdout.

A program of MindSpore's environment, which need not have msprobe-client: it imports the standard library, numpy and
mindspore alone, and MindSpore's protobuf does not meet ours.

A message is a line of JSON, then the bytes of its tensors one after another. A tensor stands in the JSON as
{"tensor": [dtype, shape]}, a tuple as {"tuple": [...]}, a dtype as {"dtype": name}, a slice as {"slice": [...]}.
A request has home ("mint", "mint.nn.functional", "ops" or "Tensor"), operation, args, kwargs, seed, and for the
backward pass wanted (whether each tensor among args needs a gradient) and sens (of each output, or null). An answer
has outputs and gradients (of the wanted tensors), or error. The first line says that MindSpore is ready.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

sys.path.remove(str(Path(__file__).resolve().parent))  # where other modules of msprobe-client are

_PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a call that hangs does not outlive who asked
_answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what MindSpore prints is no answer, also while it is imported

import mindspore as ms  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import numpy as np  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

_TYPES = {
    "Bool": (np.bool_, ms.bool_),
    "Int8": (np.int8, ms.int8),
    "UInt8": (np.uint8, ms.uint8),
    "Int16": (np.int16, ms.int16),
    "Int32": (np.int32, ms.int32),
    "Int64": (np.int64, ms.int64),
    "Float16": (np.float16, ms.float16),
    "Float32": (np.float32, ms.float32),
    "Float64": (np.float64, ms.float64),
    "BFloat16": (np.uint16, ms.bfloat16),  # numpy has its bits alone
    "Complex64": (np.complex64, ms.complex64),
    "Complex128": (np.complex128, ms.complex128),
}


def _tensor(content: bytes, dtype: str, shape: list[int]) -> Any:
    array: Any = np.frombuffer(content, _TYPES[dtype][0]).reshape(shape)
    if dtype == "BFloat16":
        return ms.Tensor((array.astype(np.uint32) << 16).view(np.float32)).astype(ms.bfloat16)
    return ms.Tensor(array.copy())


def _content(tensor: Any) -> bytes:
    if tensor.dtype == ms.bfloat16:
        wide = tensor.astype(ms.float32).asnumpy().view(np.uint32)
        return bytes((wide >> 16).astype(np.uint16).tobytes())
    return bytes(tensor.asnumpy().tobytes())


def _decoded(value: Any, stream: BinaryIO, tensors: list[Any]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, stream, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        dtype, shape = value["tensor"]
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(_TYPES[dtype][0]).itemsize
        tensors.append(_tensor(stream.read(size), dtype, shape))
        return tensors[-1]
    if "tuple" in value:
        return tuple(_decoded(item, stream, tensors) for item in value["tuple"])
    if "dtype" in value:
        return _TYPES[value["dtype"]][1]
    if "slice" in value:
        return slice(*value["slice"])
    return {key: _decoded(item, stream, tensors) for key, item in value["dict"].items()}


def _encoded(value: Any, contents: list[bytes]) -> Any:
    if isinstance(value, ms.Tensor):
        if str(value.dtype) not in _TYPES:
            raise TypeError(f"its output is of dtype {value.dtype}, which is not compared")
        contents.append(_content(value))
        return {"tensor": [str(value.dtype), list(value.shape)]}
    if isinstance(value, list | tuple):
        return [_encoded(item, contents) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else None


def _with(value: Any, given: Any) -> Any:
    """value with its tensors taken from an iterator."""
    if isinstance(value, ms.Tensor):
        return next(given)
    if isinstance(value, list | tuple):
        return type(value)(_with(item, given) for item in value)
    return value


def _read(request: dict[str, Any], stream: BinaryIO) -> tuple[list[Any], dict[str, Any], list[Any] | None, list[Any]]:
    """Arguments, the same by keyword, sens, and the tensors among the former."""
    tensors: list[Any] = []
    args = _decoded(request["args"], stream, tensors)
    kwargs = {key: _decoded(value, stream, []) for key, value in request["kwargs"].items()}
    return args, kwargs, _decoded(request["sens"], stream, []), tensors


def _run(
    request: dict[str, Any], args: list[Any], kwargs: dict[str, Any], sens: list[Any] | None, tensors: list[Any]
) -> tuple[Any, list[Any]]:
    function: Any = ms
    for part in (*request["home"].split("."), *request["operation"].split(".")):
        function = getattr(function, part)
    ms.set_seed(request["seed"])
    if sens is None:
        return function(*args, **kwargs), []
    wanted = [tensor for tensor, needs in zip(tensors, request["wanted"], strict=True) if needs]
    # Of copies: what a method in place has changed is no input of the backward pass.
    outputs = function(*_with(args, iter([tensor.copy() for tensor in tensors])), **kwargs)

    def call(*given: Any) -> Any:
        left = iter(given)
        every = [next(left) if needs else tensor for tensor, needs in zip(tensors, request["wanted"], strict=True)]
        return function(*_with(args, iter(every)), **kwargs)

    several = isinstance(outputs, list | tuple)
    found = [*outputs] if several else [outputs]
    sens = [*sens, *[None] * (len(found) - len(sens))]
    filled = tuple(ms.ops.zeros_like(out) if s is None else s for out, s in zip(found, sens, strict=False))
    gradient = ms.ops.GradOperation(get_all=True, sens_param=True)(call)
    gradients = gradient(*wanted, filled if several else filled[0])
    return outputs, list(gradients) if isinstance(gradients, list | tuple) else [gradients]


def main() -> None:
    kind, _, number = sys.argv[1].partition(":")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_device("Ascend", int(number)) if kind == "npu" else ms.set_device("CPU")
    requests = sys.stdin.buffer
    _answers.write(b"ready\n")
    _answers.flush()
    while line := requests.readline():
        request = json.loads(line)
        given = _read(request, requests)
        contents: list[bytes] = []
        try:
            outputs, gradients = _run(request, *given)
            answer = {"outputs": _encoded(outputs, contents), "gradients": _encoded(gradients, contents)}
        except Exception as error:  # whatever an operator raises
            contents = []
            answer = {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}
        _answers.write(json.dumps(answer).encode() + b"\n" + b"".join(contents))
        _answers.flush()


if __name__ == "__main__":
    main()

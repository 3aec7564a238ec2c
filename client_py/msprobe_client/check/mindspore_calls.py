"""Runs calls of MindSpore, by a process of the environment that has it. Tensors are torch's on both ways.

Which environment: this one; else the one whose Python MSPROBE_MINDSPORE_PYTHON names.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from msprobe_client.check import replay
from msprobe_client.check.arguments import MINDSPORE_DTYPES, Arguments, NotReplayable, from_buffer
from msprobe_client.check.operators import CallName
from msprobe_client.errors import InvalidArgument

ENVIRONMENT = "MSPROBE_MINDSPORE_PYTHON"
_PROGRAM = Path(__file__).with_name("mindspore_process.py")
_SECONDS_TO_END = 10
_HOMES = {"Functional": "ops", "Mint": "mint", "MintFunctional": "mint.nn.functional", "Tensor": "Tensor"}
_NAMES = {dtype: name for name, dtype in MINDSPORE_DTYPES.items()}


def python() -> str:
    """Of the environment with MindSpore. InvalidArgument: there is none."""
    named = os.environ.get(ENVIRONMENT, "")
    if named and not os.access(named, os.X_OK):
        raise InvalidArgument(f"{ENVIRONMENT}={named} is no program; name the bin/python of MindSpore's environment")
    if not named and find_spec("mindspore") is None:
        raise InvalidArgument(
            "these are calls of MindSpore, and this environment has no mindspore; install it here, or set "
            f"{ENVIRONMENT} to the bin/python of the environment that has it"
        )
    return named or sys.executable


class Crashed(Exception):
    """A call ended MindSpore's process; the text says how."""


class Refused(Exception):
    """MindSpore did not compute it; the text is the first line of what it said."""


class MindSpore:
    """Starts its process at the first call, and another after one that died. One thread at a time.

    device: cpu or npu:N.
    """

    def __init__(self, device: str) -> None:
        self._command = [python(), str(_PROGRAM), device]
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, name: CallName, arguments: Arguments, grad_outputs: Sequence[torch.Tensor | None] | None, seed: int
    ) -> replay.Result:
        """As replay.run. Crashed; Refused."""
        contents: list[bytes] = []
        wanted = [place for place, need in _positional(arguments) if need]
        backward = grad_outputs is not None and bool(wanted)
        request = {
            "home": _HOMES[name.prefix],
            "operation": name.operation,
            "args": [_encoded(value, contents) for value in arguments.args],
            "kwargs": {key: _encoded(value, contents) for key, value in arguments.kwargs.items()},
            "sens": [_encoded(grad, contents) for grad in grad_outputs or []] if backward else None,
            "wanted": [need for _, need in _positional(arguments)],
            "seed": seed,
        }
        answer, stream = self._ask(json.dumps(request).encode() + b"\n" + b"".join(contents), name)
        if "error" in answer:
            raise Refused(answer["error"])
        result = replay.Result(outputs=replay.leaves(_decoded(answer["outputs"], stream)))
        gradients = _decoded(answer["gradients"], stream)
        result.gradients = [(place, grad) for place, grad in zip(wanted, gradients, strict=False) if grad is not None]
        if grad_outputs is not None and not backward:
            result.no_backward = "no argument has a gradient"
        return result

    def _ask(self, message: bytes, name: CallName) -> tuple[dict[str, Any], Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            self._must_begin(self._process)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(message)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            from msprobe_client.jobs.supervisor import death

            raise Crashed(f"{name.base} ended MindSpore's process: {death(process.wait())}")
        return json.loads(line), process.stdout

    def _must_begin(self, process: subprocess.Popen[bytes]) -> None:
        """Its first line says that MindSpore is there. InvalidArgument: it is not."""
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() == b"ready\n":
            threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()  # it says much
            return
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
        process.wait()
        raise InvalidArgument(
            f"MindSpore does not start by {self._command[0]}: {said[-1] if said else 'it says nothing'}"
        )

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:  # what MindSpore does at its exit is its own
                self._process.kill()
                self._process.wait()
            self._process = None


@functools.cache
def on(device: str) -> MindSpore:
    """The one of this process for a device."""
    made = MindSpore(device)
    atexit.register(made.close)
    return made


def _positional(arguments: Arguments) -> list[tuple[str, bool]]:
    """Places of the tensors that have no keyword, each with whether it needs a gradient."""
    return [
        (place, need)
        for (place, _), need in zip(arguments.tensors, arguments.needs_grad, strict=True)
        if place.startswith("input.")
    ]


def _encoded(value: Any, contents: list[bytes]) -> Any:
    if isinstance(value, torch.Tensor):
        flat = value.detach().to("cpu").contiguous()
        contents.append(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()))
        return {"tensor": [_NAMES[value.dtype], list(value.shape)]}
    if isinstance(value, torch.dtype):
        return {"dtype": _NAMES[value]}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if isinstance(value, list | tuple):  # MindSpore's functions take tuples where torch's take lists
        return {"tuple": [_encoded(item, contents) for item in value]}
    if isinstance(value, dict):
        return {"dict": {key: _encoded(item, contents) for key, item in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise NotReplayable(f"an argument is a {type(value).__name__}, which is not passed to MindSpore")


def _decoded(value: Any, stream: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item, stream) for item in value]
    if isinstance(value, dict):
        name, shape = value["tensor"]
        dtype = MINDSPORE_DTYPES[name]
        return from_buffer(stream.read(torch.Size(shape).numel() * dtype.itemsize), dtype, shape)
    return value

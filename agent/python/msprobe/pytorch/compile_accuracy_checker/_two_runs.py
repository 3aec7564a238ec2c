"""Two runs of the same modules in one store, captured one after the other and compared by the server's policy."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from msprobe import _agent
from msprobe._common import leaving
from msprobe._common.errors import MsprobeError
from msprobe.pytorch._open_agent import distributed_rank, open_agent
from msprobe.pytorch.compare import with_client
from msprobe.pytorch.compile_accuracy_checker._placing import StandIns
from msprobe.pytorch.compile_accuracy_checker._results import ModuleDiff, TensorDiff
from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.interception import Interception

_SIDES = ("eager", "compiled")
_DURABLE_SECONDS = 600.0
# Of a record's name, what the rows call it; a backward call is given the gradients of what the forward one gave.
_CHECKS = {
    ("forward", "input"): "fwd_input",
    ("forward", "output"): "fwd_output",
    ("backward", "input"): "grad_output",
    ("backward", "output"): "grad_input",
}
_ROW = re.compile(
    r"(?P<place>.+)\.(?P<phase>forward|backward)\.(?P<call>\d+)\.(?P<direction>input|output)\.(?P<which>.+)"
)


class TwoRuns:
    """Each side is captured once, then compared. The runs stay: runs has their names, store says where.

    data_dir: of a store of one's own; none where MSPROBE_SERVER names a server, which then gets them.
    """

    def __init__(self, data_dir: str | os.PathLike[str]) -> None:
        self._server = os.environ.get("MSPROBE_SERVER", "")
        self._data_dir = Path(data_dir).resolve()
        self.store = self._server or str(self._data_dir)  # a server's address, or a data directory
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        self.runs = {side: f"{side}-{stamp}" for side in _SIDES}
        self._names: dict[str, str] = {}  # of records, without count -> name in the model
        self._gradients: dict[str, tuple[str, str]] = {}  # the same of gradients -> name in the model, parameter
        self._agent: Any = None  # of the side that is captured
        self._interception = Interception()
        debugger = PrecisionDebugger._instance
        if debugger is not None and getattr(debugger, "_running", False):
            raise MsprobeError("PrecisionChecker cannot run between start() and stop() of a PrecisionDebugger")
        self._client = with_client(self._connect)

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def captured(self, side: str, modules: StandIns, model: torch.nn.Module) -> Iterator[None]:
        """Calls of these modules, by their names, become the run of that side."""
        asked = {
            "task": "tensor", "level": "L0", "dump_path": str(self._data_dir), "extra_info": False, "edges": "off",
            "reuse": "off", "loss_policy": "stall", "server": self._client.address, "run": self.runs[side],
        }  # fmt: skip
        config = _agent.parse_config(json.dumps(asked), None, None, None, None)
        agent = open_agent(config, distributed_rank() or 0, lambda: None)
        for name, module in modules.items():
            place = f"Module.{name or type(model).__name__}"
            self._names.setdefault(place, name or type(model).__name__)
            agent.add_module(module, name=place, is_root=False)
        if "" not in modules:
            agent.add_module(model, name="", is_root=True)
        self._agent = agent
        agent.start(0)
        self._interception.install(with_apis=False)
        try:
            yield
        finally:
            self._agent = None
            self._interception.restore()
            agent.stop()
            agent.end_step(0, True)
            missing = agent.wait(_DURABLE_SECONDS)
            leaving.leave(agent, config)
            if missing:
                raise MsprobeError(f"the tensors of run {self.runs[side]} are not all stored: {missing}")

    def record_gradients(self, modules: StandIns, model: torch.nn.Module) -> None:
        """While a side is captured: the gradients that the parameters of these modules have now."""
        for name, module in modules.items():
            for parameter, tensor in module.named_parameters():
                if tensor.grad is None:
                    continue
                place = f"Module.{name or type(model).__name__}.{parameter}.gradient"
                self._gradients[place] = name or type(model).__name__, parameter
                taker = _Taker()
                self._agent.add_module(taker, name=place, is_root=False)
                taker(tensor.grad)

    def _connect(self) -> Any:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from msprobe_client.client import Client

        return Client(self._server) if self._server else Client(data_dir=self._data_dir, create=True)

    def compare(self, rtol: float | None, atol: float | None) -> list[ModuleDiff]:
        """A row for each tensor of both runs, by modules in the order of their calls."""

        def rows() -> list[Any]:
            from msprobe_client.comparison import ComparedTensor

            found = self._client.compare(
                self.runs["compiled"], self.runs["eager"], rows="all", order="execution", rtol=rtol, atol=atol
            )
            return [row for row in found if isinstance(row, ComparedTensor)]

        diffs: dict[str, ModuleDiff] = {}
        for row in with_client(rows):
            found = _ROW.fullmatch(row.name)
            if found is None or not _is_tensor(row):
                continue
            place, which, check = found["place"], found["which"], _CHECKS[found["phase"], found["direction"]]
            if place in self._gradients:
                name, which = self._gradients[place]
                check = "grad_parameter"
            elif place in self._names:
                name = self._names[place]
            else:
                continue
            diffs.setdefault(name, ModuleDiff(name)).add(check, _tensor_diff(row, int(found["call"]), which))
        return list(diffs.values())


class _Taker(torch.nn.Module):
    """What it is called with is recorded."""

    def forward(self, gradient: torch.Tensor) -> None:
        del gradient


def _tensor_diff(row: Any, call: int, name: str) -> TensorDiff:
    notes = [f"call {call}"] if call else []
    notes += [] if name.isdigit() else [name]
    if row.verdict == "golden only":
        notes.append("MISSING in compiled")
    elif row.verdict == "target only":
        notes.append("MISSING in eager")
    elif row.verdict not in ("equal", "within"):
        notes.append(row.message or row.verdict)
    shapes = [tuple(json.loads(shape)) for shape in (row.golden_shape, row.target_shape) if shape]
    measured = {name: row.metrics.get(name) for name in ("max_abs", "mean_abs", "max_rel")}
    numbers = {name: float("inf") if value is None else float(value) for name, value in measured.items()}
    is_close = not row.is_difference
    return TensorDiff(
        **(dict.fromkeys(numbers, 0.0) if is_close and not row.metrics else numbers),
        allclose=is_close,
        shape=shapes[0] if len(set(shapes)) == 1 else tuple(shapes),
        excess=row.excess,
        note="; ".join(notes),
    )


def _is_tensor(row: Any) -> bool:
    return bool((row.target_dtype or row.golden_dtype).startswith("torch."))


__all__ = ["TwoRuns"]

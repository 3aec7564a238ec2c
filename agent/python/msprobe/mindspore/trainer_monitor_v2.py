"""TrainerMonitorV2 of mindstudio-probe: numbers of cells, gradients, optimizer and parameters in csv files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from mindspore import Tensor, nn

from msprobe._common import log, trainer_monitor_v2
from msprobe._common.trainer_monitor_v2 import EPS
from msprobe.mindspore import _optimizers
from msprobe.mindspore._gradients import BackwardPasses, CellCalls
from msprobe.mindspore._open_agent import distributed_rank
from msprobe.mindspore._tensor_numbers import tensor_numbers


class TrainerMonitorV2(trainer_monitor_v2.TrainerMonitorV2):
    """That of MindSpore, in PyNative mode. A call of the optimizer is its step."""

    framework = "mindspore"

    def __init__(self, config_path: str | os.PathLike[str], fr: str | None = None) -> None:
        super().__init__(config_path, fr)
        self._moments_of: dict[str, dict[int, Tensor]] = {}  # of the optimizer: _optimizers.moments_of
        self._gradients: Mapping[int, Tensor] = {}  # of the call of the optimizer that is under way, likewise
        self._passes = BackwardPasses(self._accumulated)
        self._calls = CellCalls(lambda name, _cell: _CallGradients(self, name) if self._is_collected() else None)

    # Of msprobe.mindspore._optimizers.

    def stepping(self, optimizer: Any, gradients: Mapping[int, Tensor]) -> None:
        if optimizer is self._optimizer:
            self._passes.end_step(self._parameters)
            self._gradients = gradients
            self._begin_step()
            self._gradients = {}

    def stepped(self, optimizer: Any) -> None:
        if optimizer is self._optimizer:
            self._end_step()

    # What the monitor asks for.

    def _own_rank(self) -> int:
        return distributed_rank() or 0

    def _unwrapped(self, optimizer: Any) -> Any:
        return _optimizers.unwrapped(optimizer)

    def _watch(self, optimizer: Any) -> None:
        if self._optimizer is not None:
            self._moments_of = _optimizers.moments_of(self._optimizer)
            _optimizers.observe(self)
        for name, parameter in self._parameters.items() if "weight_grad" in self._monitors else ():
            if parameter.requires_grad:
                self._handles.append(self._passes.hook(name, parameter))

    def _unwatch(self) -> None:
        _optimizers.leave(self)

    def _watch_collectives(self, fields: dict[str, Any]) -> None:
        log.warning("monitor cc has no effect: calls between ranks are not watched in MindSpore")

    def _hook_module(self, name: str, module: nn.Cell) -> Iterable[Any]:
        def before_forward(_cell: nn.Cell, args: Any, kwargs: Any) -> None:
            self._read_values(name, "input", (*args, *kwargs.values()), "forward")

        def after_forward(_cell: nn.Cell, _args: Any, output: Any) -> None:
            self._read_values(name, "output", output, "forward")

        yield module.register_forward_pre_hook(before_forward, with_kwargs=True)
        yield module.register_forward_hook(after_forward)
        yield from self._calls.hook(name, module)

    def _finish_calls(self) -> None:
        self._calls.finish()

    def _parameters_in(self, chunk: nn.Cell) -> Iterable[tuple[str, Any]]:
        return chunk.parameters_and_names()

    def _modules_in(self, chunk: nn.Cell) -> Iterable[tuple[str, nn.Cell]]:
        return chunk.cells_and_names()

    def _numbers(self, kind: str, tensor: Any) -> dict[str, Any]:
        return tensor_numbers(tensor, self._ops[kind], EPS)

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def _gradient(self, parameter: Any) -> Any:
        return self._gradients.get(id(parameter))

    def _moment(self, parameter: Any, name: str) -> Any:
        return _optimizers.moment_of(self._moments_of, parameter, name)

    def _accumulated(self, name: str, _parameter: Any, gradient: Tensor, count: int) -> None:
        self._note_accumulation(name, count, lambda: gradient)


class _CallGradients:
    """The gradients of one call of a cell, as a Passage tells them.

    Of gradients that the program does not ask for there are none.
    """

    def __init__(self, monitor: TrainerMonitorV2, name: str) -> None:
        self._monitor, self._name = monitor, name
        self._outputs: tuple[Any, ...] = ()

    def read_gradient(self, gradient: Tensor) -> Any:
        return self._monitor._numbers("module", gradient)

    def begin_backward(self, outputs: tuple[Any, ...]) -> None:
        self._outputs = outputs

    def end_backward(self, inputs: tuple[Any, ...]) -> None:
        for part, gradients in (("grad_input", inputs), ("grad_output", self._outputs)):
            for index, numbers in enumerate(gradients):
                if numbers is not None:
                    self._monitor._add_row("module", f"{self._name}.{part}.{index}", "backward", numbers)


__all__ = ["TrainerMonitorV2"]

"""TrainerMon of mindstudio-probe: numbers of a training run in csv files, by the agent's kernel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from mindspore import Tensor, nn

from msprobe._common import log
from msprobe._common.contained import contained
from msprobe._common.trainer_mon import Monitor, Numbers
from msprobe.mindspore import _optimizers
from msprobe.mindspore._gradients import BackwardPasses, CellCalls
from msprobe.mindspore._open_agent import distributed_rank
from msprobe.mindspore._tensor_numbers import tensor_numbers


class TrainerMon(Monitor):
    """Watches one model and its optimizer in PyNative mode. config_file_path: docs/monitoring.md says which fields have
    an effect.

    Nothing raises into the training once set_monitor has returned.
    """

    formats = ("csv", "api")

    def __init__(
        self,
        config_file_path: str | os.PathLike[str],
        process_group: Any = None,
        params_have_main_grad: bool = True,
    ) -> None:
        """process_group: accepted; every rank writes its own numbers.

        params_have_main_grad: the gradient is a parameter's main_grad, where it has one; else what the optimizer is
        called with.
        """
        self._moments_of: dict[str, dict[int, Tensor]] = {}  # of the optimizer: _optimizers.moments_of
        self._gradients: Mapping[int, Tensor] = {}  # of the call of the optimizer that is under way, likewise
        self._passes = BackwardPasses(self._accumulated)
        self._calls_of_cells = CellCalls(
            lambda name, module: _CallGradients(self, name, module) if self._is_collected() else None
        )
        super().__init__(
            config_file_path, params_have_main_grad, rank=distributed_rank() or 0, pp_stage=0, group_mates=[0]
        )

    def generate_wgrad_metrics(self, grad_dict: Any = None) -> tuple[Numbers, Numbers]:
        """Numbers of the weights' gradients: as the optimizer takes them, and before reduction.

        grad_dict: tag -> gradient, read now and added.
        """
        return super().generate_wgrad_metrics(grad_dict)

    # Of msprobe.mindspore._optimizers.

    def stepping(self, optimizer: Any, gradients: Mapping[int, Tensor]) -> None:
        if optimizer is not self._stepped:
            return
        self._calls_of_cells.finish()
        self._gradients = gradients
        self._passes.end_step(self._parameters)
        self._begin_step()
        self._gradients = {}

    def stepped(self, optimizer: Any) -> None:
        if optimizer is self._stepped:
            self._end_step()

    def _watch_steps(self, optimizer: Any) -> None:
        self._stepped = _optimizers.unwrapped(optimizer)
        self._moments_of = _optimizers.moments_of(self._stepped)
        _optimizers.observe(self)

    def _hook_parameters(self) -> None:
        if self.config.cc_distribution.get("enable"):
            log.warning("cc_distribution has no effect: calls between ranks are not watched in MindSpore")
        for name, parameter in self._parameters.items() if self.config.wg_distribution else ():
            self._handles.append(self._passes.hook(name, parameter))

    def _unhook_parameters(self) -> None:
        self._calls_of_cells.finish()
        self._passes.end_step(self._parameters)

    def _accumulated(self, name: str, _parameter: Any, gradient: Tensor, count: int) -> None:
        self._note_accumulation(name, count, lambda: gradient)

    def _hook_module(self, name: str, module: nn.Cell) -> Iterable[Any]:
        if not self.config.backward_only:
            hook = contained("TrainerMon", lambda *given: self._after_forward(name, *given))
            yield module.register_forward_hook(hook, with_kwargs=True)
        if not self.config.forward_only:
            yield from self._calls_of_cells.hook(name, module)

    def _after_forward(self, name: str, module: nn.Cell, args: Any, kwargs: Any, output: Any) -> None:
        if not module.training:
            return
        inputs = [each for each in [*args, *kwargs.values()] if isinstance(each, Tensor)]
        if isinstance(output, (list, tuple)):
            output = [each for each in output if isinstance(each, Tensor)]
        self._read_forward(name, module, inputs, output)

    def _parameters_in(self, chunk: nn.Cell) -> Iterable[tuple[str, Any]]:
        return chunk.parameters_and_names()

    def _modules_in(self, chunk: nn.Cell) -> Iterable[tuple[str, nn.Cell]]:
        return chunk.cells_and_names()

    def _squashes(self) -> bool:
        """As the tool has it for MindSpore."""
        return True

    def _numbers(self, tensor: Any) -> dict[str, Any]:
        return tensor_numbers(tensor, self.config.ops, self.config.eps)

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def _as_tensor(self, value: float) -> Tensor:
        return Tensor(value)

    def _gradient(self, parameter: Any) -> Any:
        main = getattr(parameter, "main_grad", None) if self.params_have_main_grad else None
        return self._gradients.get(id(parameter)) if main is None else main

    def _moment(self, parameter: Any, name: str) -> Any:
        return _optimizers.moment_of(self._moments_of, parameter, name)


class _CallGradients:
    """The gradients of one call of a cell, as a Passage tells them: read where they pass, and shown when all are there.

    Of gradients that the program does not ask for there are none.
    """

    def __init__(self, monitor: TrainerMon, name: str, module: nn.Cell) -> None:
        self._monitor, self._name, self._module = monitor, name, module
        self._micro = 0
        self._outputs: tuple[Any, ...] = ()

    def read_gradient(self, gradient: Tensor) -> Any:
        return self._monitor._numbers(gradient)

    def begin_backward(self, outputs: tuple[Any, ...]) -> None:
        self._micro = self._monitor._micro_step(self._monitor._backwards, self._module)
        self._outputs = outputs

    def end_backward(self, inputs: tuple[Any, ...]) -> None:
        came = [numbers for numbers in inputs if numbers is not None]
        self._monitor._read_backward(self._name, self._micro, came, self._outputs, lambda numbers: numbers)


__all__ = ["TrainerMon"]

"""TrainerMonitorV2 of mindstudio-probe: numbers of modules, gradients, optimizer and parameters in csv files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from msprobe._common import trainer_monitor_v2
from msprobe._common.trainer_monitor_v2 import EPS
from msprobe.pytorch._communication_numbers import CommunicationNumbers
from msprobe.pytorch._tensor_numbers import tensor_numbers
from msprobe.pytorch._training_watch import TrainingWatch, unwrapped


class TrainerMonitorV2(trainer_monitor_v2.TrainerMonitorV2):
    """That of torch."""

    framework = "pytorch"

    def __init__(self, config_path: str | os.PathLike[str], fr: str | None = None) -> None:
        super().__init__(config_path, fr)
        self._training: TrainingWatch | None = None
        self._communication: CommunicationNumbers | None = None

    # What the watch shows.

    def accumulated(self, name: str, parameter: torch.nn.Parameter, micro_batch: int) -> None:
        self._note_accumulation(name, micro_batch, lambda: self._gradient(parameter))

    def clipping(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        """Nothing is known of it here."""

    def stepping(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        self._begin_step()

    def stepped(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        self._end_step()

    def skipped(self, optimizer: Any) -> None:
        """The tool sees nothing of it either."""

    # What the monitor asks for.

    def _own_rank(self) -> int:
        return torch.distributed.get_rank() if _is_distributed() else 0

    def _unwrapped(self, optimizer: Any) -> torch.optim.Optimizer:
        return unwrapped(optimizer)

    def _watch(self, optimizer: Any) -> None:
        self._training = TrainingWatch(self, accumulation="weight_grad" in self._monitors, clipping=False)
        self._training.add_model(self._parameters.items())
        if optimizer is not None:
            self._training.add_optimizer(optimizer)

    def _unwatch(self) -> None:
        if self._training is not None:
            self._training.close()
        if self._communication is not None:
            self._communication.close()
            self._communication = None

    def _watch_collectives(self, fields: dict[str, Any]) -> None:
        if _is_distributed():
            self._communication = CommunicationNumbers(fields, self._ops["cc"], EPS, self.rank)

    def _collectives(self) -> dict[str, dict[str, Any]]:
        return {} if self._communication is None else self._communication.take()

    def _hook_module(self, name: str, module: torch.nn.Module) -> Iterable[Any]:
        def before_forward(_module: Any, args: Any, kwargs: Any) -> None:
            self._read_values(name, "input", (*args, *kwargs.values()), "forward")

        def after_forward(_module: Any, _args: Any, output: Any) -> None:
            self._read_values(name, "output", output, "forward")

        def after_backward(_module: Any, grad_input: Any, grad_output: Any) -> None:
            self._read_values(name, "grad_input", grad_input, "backward")
            self._read_values(name, "grad_output", grad_output, "backward")

        yield module.register_forward_pre_hook(before_forward, with_kwargs=True)
        yield module.register_forward_hook(after_forward)
        yield module.register_full_backward_hook(after_backward)

    def _parameters_in(self, chunk: torch.nn.Module) -> Iterable[tuple[str, torch.nn.Parameter]]:
        return chunk.named_parameters()

    def _modules_in(self, chunk: torch.nn.Module) -> Iterable[tuple[str, torch.nn.Module]]:
        return chunk.named_modules()

    def _numbers(self, kind: str, tensor: Any) -> dict[str, Any]:
        return tensor_numbers(tensor, self._ops[kind], EPS)

    def _is_tensor(self, value: Any) -> bool:
        return torch.is_tensor(value)

    def _gradient(self, parameter: Any) -> Any:
        main = getattr(parameter, "main_grad", None)
        return parameter.grad if main is None else main

    def _moment(self, parameter: Any, name: str) -> Any:
        return self._optimizer.state.get(parameter, {}).get(name)


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


__all__ = ["TrainerMonitorV2"]

"""TrainerMon of mindstudio-probe: numbers of a training run in csv files, by the agent's kernel."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from msprobe._common.contained import contained
from msprobe._common.errors import MsprobeError
from msprobe._common.trainer_mon import Monitor, Numbers
from msprobe.pytorch._communication_numbers import CommunicationNumbers
from msprobe.pytorch._tensor_numbers import tensor_numbers
from msprobe.pytorch._training_watch import TrainingWatch


class TrainerMon(Monitor):
    """Watches one model and its optimizer. config_file_path: docs/monitoring.md says which fields have an effect.

    Nothing raises into the training once set_monitor has returned.
    """

    def __init__(
        self,
        config_file_path: str | os.PathLike[str],
        process_group: Any = None,
        params_have_main_grad: bool = True,
        opt_ty: Any = None,
    ) -> None:
        dist = torch.distributed
        is_distributed = dist.is_available() and dist.is_initialized()
        rank = dist.get_rank() if is_distributed else 0
        group = process_group or (dist.group.WORLD if is_distributed else None)
        self._watch: TrainingWatch | None = None
        self._communication: CommunicationNumbers | None = None
        super().__init__(
            config_file_path,
            params_have_main_grad,
            rank=rank,
            pp_stage=dist.get_group_rank(group, rank) if is_distributed else 0,
            group_mates=dist.get_process_group_ranks(group) if is_distributed else [0],
        )

    def set_wrapped_optimizer(self, optimizer: Any) -> None:
        """For monitor_gnorm_with_ad."""
        self._optimizer = optimizer

    def monitor_gnorm_with_ad(
        self,
        model: Any,
        optimizer: Any = None,
        grad_acc_steps: int = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """The older name of set_monitor."""
        if optimizer is None and self._optimizer is None:
            raise MsprobeError(
                "monitor_gnorm_with_ad: optimizer is missing; call set_wrapped_optimizer before, or give it"
            )
        self.set_monitor(model, optimizer or self._optimizer, grad_acc_steps, tp_group, dp_group, start_iteration)

    # What the watch shows. `_steps` watches as long as this lives; `_watch` only while something is monitored.

    def accumulated(self, name: str, parameter: torch.nn.Parameter, micro_batch: int) -> None:
        self._note_accumulation(name, micro_batch, lambda: self._gradient(parameter))

    def clipping(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        """Nothing is known of it here."""

    def stepping(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        self._state = optimizer.state
        self._begin_step()

    def stepped(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        self._end_step()

    def skipped(self, optimizer: Any) -> None:
        """The tool sees nothing of it either."""

    def _watch_steps(self, optimizer: Any) -> None:
        self._steps = TrainingWatch(self, accumulation=False, clipping=False)
        self._steps.add_model(named for chunk in self.model for named in self._parameters_in(chunk))
        self._steps.add_optimizer(optimizer)

    def _hook_parameters(self) -> None:
        self._watch = TrainingWatch(self, accumulation=self.config.wg_distribution, clipping=False)
        self._watch.add_model(self._parameters.items())
        dist, fields = torch.distributed, self.config.cc_distribution
        if fields.get("enable") and dist.is_available() and dist.is_initialized() and self._takes_rank():
            self._communication = CommunicationNumbers(fields, self.config.ops, self.config.eps, self.rank)

    def _unhook_parameters(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._communication is not None:
            self._communication.close()
            self._communication = None

    def _hook_module(self, name: str, module: torch.nn.Module) -> Iterable[Any]:
        if type(module).__name__ == "FullyShardedDataParallel":
            return
        if not self.config.backward_only:
            hook = contained("TrainerMon", lambda *given: self._after_forward(name, *given))
            yield module.register_forward_hook(hook, with_kwargs=True)
        if not self.config.forward_only:
            hook = contained("TrainerMon", lambda *given: self._after_backward(name, *given))
            yield module.register_full_backward_hook(hook)

    def _after_forward(self, name: str, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if not module.training or torch._C._current_graph_task_id() != -1:  # the second forward of checkpointing
            return
        inputs = [each for each in [*args, *kwargs.values()] if torch.is_tensor(each)]
        self._read_forward(name, module, inputs, output)

    def _after_backward(self, name: str, module: torch.nn.Module, grad_input: Any, grad_output: Any) -> None:
        micro = self._micro_step(self._backwards, module)
        self._read_backward(name, micro, grad_input, grad_output, self._numbers)

    def _parameters_in(self, chunk: torch.nn.Module) -> Iterable[tuple[str, torch.nn.Parameter]]:
        return chunk.named_parameters()

    def _modules_in(self, chunk: torch.nn.Module) -> Iterable[tuple[str, torch.nn.Module]]:
        return chunk.named_modules()

    def _numbers(self, tensor: Any) -> dict[str, Any]:
        return tensor_numbers(tensor, self.config.ops, self.config.eps)

    def _is_tensor(self, value: Any) -> bool:
        return torch.is_tensor(value)

    def _as_tensor(self, value: float) -> torch.Tensor:
        return torch.tensor(value)

    def _gradient(self, parameter: Any) -> Any:
        return parameter.main_grad if self.params_have_main_grad else parameter.grad

    def _moment(self, parameter: Any, name: str) -> Any:
        return self._state.get(parameter, {}).get(name)

    def _collectives(self) -> Numbers:
        return {} if self._communication is None else self._communication.take()


__all__ = ["TrainerMon"]

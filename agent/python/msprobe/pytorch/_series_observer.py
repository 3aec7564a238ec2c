"""Task monitor: what a training step does to the parameters becomes series of scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe._common.training_series import ParameterSeries
from msprobe.pytorch._communication import carried
from msprobe.pytorch._communication_watch import CommunicationWatch, call_site
from msprobe.pytorch._shards import local, shard_of
from msprobe.pytorch._training_watch import TrainingWatch, model_itself
from msprobe.pytorch.model_series.series import ModelSeries


class TrainingSeries(ParameterSeries):
    """Reads tensors into the series of a debugger's agent, under names that the rules of the server know.

    docs/monitoring.md lists the names. debugger: of task monitor, with its session open.
    """

    def __init__(self, debugger: Any) -> None:
        super().__init__(debugger)
        self._clipped: set[str] = set()
        self._watch = TrainingWatch(self, accumulation=self._config.micro_batches or _is_reduced())
        self._optimizers: set[int] = set()
        self._sites: dict[int, str] = {}  # of calls under way, by the identity of their arguments
        self._calls: dict[str, list[int]] = {}  # of the step, by name: how many, and their bytes
        self._communication = CommunicationWatch(self, inner=False) if self._config.communication else None
        self._of_model = ModelSeries(debugger) if self._config.model_series else None

    def add(self, model: torch.nn.Module, prefix: str) -> None:
        inner = model_itself(model)
        for name, module in inner.named_modules():
            place = ".".join(part for part in ("Module", prefix.rstrip("."), name, type(module).__name__) if part)
            for parameter in module.parameters(recurse=False):
                self._places.setdefault(parameter, place)
                shard_of(parameter)  # it runs operators once, which a step would capture
        named = ((prefix + name, parameter) for name, parameter in inner.named_parameters())
        self._tell_frozen(self._watch.add_model(named))
        if self._of_model is not None:
            self._of_model.add((f"{prefix}{name}".rstrip("."), module) for name, module in inner.named_modules())

    def add_optimizer(self, optimizer: Any, after_step: Callable[[Any], None] | None) -> None:
        """optimizer: one, or a list; None: whichever steps the parameters."""
        self._after = after_step or self._after
        for each in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
            if id(each) not in self._optimizers:
                self._optimizers.add(id(each))
                self._watch.add_optimizer(each)

    def close(self) -> None:
        self._watch.close()
        if self._communication is not None:
            self._communication.close()
        if self._of_model is not None:
            self._of_model.close()

    def end_step(self) -> None:
        """The series of the step are about to be sent."""
        for name, (calls, size) in self._calls.items():
            self._agent.add_series(f"{name}:calls", calls)
            self._agent.add_series(f"{name}:bytes", size)
        self._calls.clear()
        self._sites.clear()

    def communicating(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not self._debugger.watches_step or self._agent is None:
            return
        name = f"communication/{operation}@{call_site()}"
        self._sites[id(arguments)] = name
        size, taken, _ = carried(operation, arguments, keywords)
        of_site = self._calls.setdefault(name, [0, 0])
        of_site[0] += 1
        of_site[1] += size
        if taken is not None:
            self._read(f"{name}.input", taken)

    def communicated(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        name = self._sites.pop(id(arguments), None)
        if name is None or self._agent is None:
            return
        _, _, given = carried(operation, arguments, keywords)
        if given is not None:
            self._read(f"{name}.output", given)

    def accumulated(self, name: str, parameter: torch.nn.Parameter, micro_batch: int) -> None:
        if parameter.grad is None or not self._takes(name, parameter):
            return
        if self._config.micro_batches:
            self._read_gradient(f"{name}.parameters_grad.micro_batch.{micro_batch}", parameter)
        if _is_reduced():
            self._read_gradient(f"{name}.parameters_grad.unreduced", parameter)

    def clipping(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        if self._config.weight_grad:
            self._clipped |= self._read_gradients(parameters, "reduced")

    def skipped(self, optimizer: torch.optim.Optimizer) -> None:
        if self._agent is not None and self._debugger.watches_step:
            self._agent.forget_series()  # gradients that are not finite, as is expected while the scale is too large
            self._agent.add_series("grad_scaler/skipped", 1)
        self._clipped.clear()
        if self._after is not None:
            self._after(optimizer)

    def stepping(self, optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> None:
        if self._config.weight_grad:
            clipped = {name: each for name, each in parameters.items() if name in self._clipped}
            self._read_gradients(clipped, "clipped")
            self._read_gradients({name: each for name, each in parameters.items() if name not in clipped}, "reduced")
        self._clipped.difference_update(parameters)
        if self._config.update_ratio:
            for name, parameter in parameters.items():
                if self._takes(name, parameter) and parameter.numel() > 1:  # one number may well go to 0
                    self._agent.before_update(name, local(parameter))

    def stepped(self, optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> None:
        for name, parameter in parameters.items():
            if not self._takes(name, parameter):
                continue
            if self._config.parameters:
                self._read(f"{name}.parameter", parameter)
            if self._config.moments:
                for key, value in _state_of(optimizer).get(parameter, {}).items():
                    if isinstance(value, torch.Tensor) and key != "step":
                        self._read(f"{name}.{key}", value)
            if self._config.update_ratio and parameter.numel() > 1:
                self._agent.after_update(name, shard_of(parameter), local(parameter))
        if self._of_model is not None and self._debugger.watches_step and self._agent is not None:
            taken = {name: each for name, each in parameters.items() if self._takes(name, each)}
            self._of_model.stepped(taken)
        if self._after is not None:
            self._after(optimizer)

    def _read_gradients(self, parameters: dict[str, torch.nn.Parameter], stage: str) -> set[str]:
        read = set()
        for name, parameter in parameters.items():
            if parameter.grad is not None and self._takes(name, parameter):
                self._read_gradient(f"{name}.parameters_grad.{stage}", parameter)
                read.add(name)
        return read

    def _read_gradient(self, name: str, parameter: torch.nn.Parameter) -> None:
        """Without the factor of a GradScaler."""
        gradient = parameter.grad
        assert gradient is not None
        own, scale = local(gradient), self._watch.scale_of(parameter)
        if scale is not None:
            # In 16 bits what the factor keeps above 0 would be lost.
            wide = own.detach() if own.dtype == torch.float64 else own.detach().float()
            own = wide * scale.to(wide.device, non_blocking=True).reciprocal()
        self._read_as(name, gradient, own)

    def _read(self, name: str, tensor: torch.Tensor) -> None:
        self._read_as(name, tensor, local(tensor))

    def _read_as(self, name: str, tensor: torch.Tensor, own: torch.Tensor) -> None:
        if own.shape.numel() > 0:  # of a sharded tensor some ranks have nothing
            self._agent.read_series(name + shard_of(tensor), own)


def _state_of(optimizer: Any) -> Any:
    """Of a ZeroRedundancyOptimizer what the optimizer inside has, for the parameters that this rank steps."""
    return getattr(optimizer, "optim", optimizer).state


def _is_reduced() -> bool:
    dist = torch.distributed
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


__all__ = ["TrainingSeries"]

"""Task monitor: what a training step does to the parameters becomes series of scalars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mindspore import Tensor, nn

from msprobe._common.named_parameters import NamedParameters
from msprobe._common.training_series import ParameterSeries
from msprobe.mindspore import _optimizers
from msprobe.mindspore._gradients import BackwardPasses


class TrainingSeries(ParameterSeries):
    """Reads tensors into the series of a debugger's agent, under names that the rules of the server know."""

    def __init__(self, debugger: Any) -> None:
        super().__init__(debugger)
        self._named = NamedParameters(self._watch)
        self._optimizers: list[Any] = []  # empty: whichever steps the parameters
        self._passes = BackwardPasses(self._read_micro_batch)
        self._handles: list[Any] = []
        _optimizers.observe(self)

    def add(self, model: nn.Cell, prefix: str) -> None:
        for name, cell in model.cells_and_names():
            place = ".".join(part for part in ("Cell", prefix.rstrip("."), name, type(cell).__name__) if part)
            for _, parameter in cell.parameters_and_names(expand=False):
                self._places.setdefault(parameter, place)
        named = [(prefix + name, parameter) for name, parameter in model.parameters_and_names()]
        self._tell_frozen(self._named.add(named))

    def add_optimizer(self, optimizer: Any, after_step: Callable[[Any], None] | None) -> None:
        """optimizer: a list; None: whichever steps the parameters."""
        self._after = after_step or self._after
        self._optimizers += optimizer or []

    def close(self) -> None:
        _optimizers.leave(self)
        for handle in self._handles:
            handle.remove()

    def end_step(self) -> None:
        """The series of the step are about to be sent."""

    def stepping(self, optimizer: Any, gradients: Mapping[int, Tensor]) -> None:
        self._named.watch_unfrozen(optimizer.parameters)
        ours = self._of(optimizer)
        self._passes.end_step(ours)
        for name, parameter in ours.items():
            if not self._takes(name, parameter):
                continue
            gradient = gradients.get(id(parameter))
            if self._config.weight_grad and gradient is not None:
                self._agent.read_series(f"{name}.parameters_grad.reduced", gradient)
            if self._config.update_ratio and parameter.size > 1:  # one number may well go to 0
                self._agent.before_update(name, parameter)

    def stepped(self, optimizer: Any) -> None:
        ours = self._of(optimizer)
        if not ours:
            return
        states = _optimizers.moments_of(optimizer) if self._config.moments else {}
        for name, parameter in ours.items():
            if not self._takes(name, parameter):
                continue
            if self._config.parameters:
                self._agent.read_series(f"{name}.parameter", parameter)
            for key, of_parameter in states.items():
                self._agent.read_series(f"{name}.{key}", of_parameter[id(parameter)])
            if self._config.update_ratio and parameter.size > 1:
                self._agent.after_update(name, "", parameter)
        if self._after is not None:
            self._after(optimizer)

    def _watch(self, name: str, parameter: Any) -> None:
        if self._config.micro_batches:
            self._handles.append(self._passes.hook(name, parameter))

    def _of(self, optimizer: Any) -> dict[str, Any]:
        """The parameters that it steps, by name; none of an optimizer that is not watched."""
        if self._optimizers and not any(optimizer is each for each in self._optimizers):
            return {}
        watched = self._named.watched
        return {watched[each]: each for each in optimizer.parameters if each in watched}

    def _read_micro_batch(self, name: str, parameter: Any, gradient: Tensor, count: int) -> None:
        if self._takes(name, parameter):
            self._agent.read_series(f"{name}.parameters_grad.micro_batch.{count}", gradient)


__all__ = ["TrainingSeries"]

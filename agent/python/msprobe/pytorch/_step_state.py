"""The state that a training step begins with, so that the step can run again from it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from msprobe._common.errors import MsprobeError
from msprobe.pytorch._reproducible import random_state, restore_random_state


class StepState:
    """Takes the state when it is made; restore() brings it back, each value into the tensor that had it.

    That takes the memory of a copy. Not thread-safe.
    """

    def __init__(self, models: list[Any], optimizer: Any, inputs: tuple[Any, ...]) -> None:
        self._random = random_state()
        self._models = [_ModuleState(module) for module in _modules(models)]
        self._optimizers = [_optimizer_state(each) for each in _listed(optimizer)]
        leaves = list(_leaves(inputs, set()))
        self._tensors = [_Tensor(each) for each in leaves if isinstance(each, torch.Tensor)]
        self._generators = [(each, each.get_state()) for each in leaves if isinstance(each, torch.Generator)]

    def restore(self) -> None:
        with torch.no_grad():
            for each in (*self._models, *self._optimizers, *self._tensors):
                each.restore()
        for generator, state in self._generators:
            generator.set_state(state)
        restore_random_state(self._random)


class _Tensor:
    """A tensor's values, and its gradient's."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._values = _once(tensor.detach()).clone()
        self._gradient = tensor.grad if tensor.is_leaf else None
        self._gradient_values = None if self._gradient is None else self._gradient.detach().clone()

    def restore(self) -> None:
        if self.tensor.is_inference():  # it can be written to only there
            with torch.inference_mode():
                _once(self.tensor).copy_(self._values)
            return
        _once(self.tensor).copy_(self._values)
        if not self.tensor.is_leaf:
            return
        if self._gradient is not None and self._gradient_values is not None:
            self._gradient.copy_(self._gradient_values)
        self.tensor.grad = self._gradient


class _ModuleState:
    """The parameters and buffers of one module, without its children's."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._members = [(members, dict(members)) for members in (module._parameters, module._buffers)]
        self._tensors = [
            _Tensor(tensor) for _, members in self._members for tensor in members.values() if tensor is not None
        ]

    def restore(self) -> None:
        for members, kept in self._members:  # a first forward may have registered some, or filled those that were None
            members.clear()
            members.update(kept)
        for tensor in self._tensors:
            tensor.restore()


class _OptimizerState:
    """What a torch optimizer keeps. load_state_dict would cast it to the parameters' dtype."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [
            {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        self._state = {
            parameter: {
                name: _Tensor(value) if isinstance(value, torch.Tensor) else copy.deepcopy(value)
                for name, value in state.items()
            }
            for parameter, state in optimizer.state.items()
        }

    def restore(self) -> None:
        for group, kept in zip(self._optimizer.param_groups, self._groups):
            group.update(copy.deepcopy(kept))
        for parameter in [each for each in self._optimizer.state if each not in self._state]:
            del self._optimizer.state[parameter]
        for parameter, values in self._state.items():
            state = self._optimizer.state[parameter]
            state.clear()
            for name, value in values.items():
                if isinstance(value, _Tensor):
                    value.restore()
                    state[name] = value.tensor
                else:
                    state[name] = copy.deepcopy(value)


class _StateDict:
    """Of a scheduler, a scaler, or what else has state_dict and load_state_dict."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder
        self._state = copy.deepcopy(holder.state_dict())

    def restore(self) -> None:
        self._holder.load_state_dict(copy.deepcopy(self._state))


def _optimizer_state(each: Any) -> _OptimizerState | _StateDict:
    if isinstance(each, torch.optim.Optimizer):
        return _OptimizerState(each)
    if hasattr(each, "state_dict") and hasattr(each, "load_state_dict"):
        return _StateDict(each)
    raise MsprobeError(
        f"optimizer is {each!r}; it should be an optimizer or something else with state_dict and load_state_dict, or a "
        "list of these"
    )


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _modules(models: list[Any]) -> Iterator[torch.nn.Module]:
    known: set[int] = set()
    for model in models:
        for root in _listed(model):
            for module in root.modules():
                if id(module) not in known:
                    known.add(id(module))
                    yield module


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """Each place of its memory once: an expanded tensor cannot be written to."""
    if tensor.layout is not torch.strided:
        return tensor
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _leaves(value: Any, known: set[int]) -> Iterator[Any]:
    """Tensors and generators, also in lists, tuples, sets, mappings and dataclasses, each once."""
    if id(value) in known:
        return
    known.add(id(value))
    if isinstance(value, Iterator):
        raise MsprobeError(
            f"replay: an input is an iterator ({type(value).__name__}), whose place cannot be restored; "
            "give the batch that it yields"
        )
    if isinstance(value, (torch.Tensor, torch.Generator)):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each, known)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _leaves(each, known)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name, None), known)
        for each in getattr(value, "__dict__", {}).values():
            yield from _leaves(each, known)


__all__ = ["StepState"]

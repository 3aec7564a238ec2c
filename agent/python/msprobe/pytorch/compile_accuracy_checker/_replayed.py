"""Calls of compiled modules, kept so that each can run again eagerly on the same inputs and gradients."""

from __future__ import annotations

import functools
import io
import pickle
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from msprobe.pytorch._reproducible import random_state, restore_random_state
from msprobe.pytorch.compile_accuracy_checker._placing import StandIns, device_of


@dataclass
class _Call:
    """One call, as it began. It holds copies of its inputs."""

    name: str
    args: Any
    kwargs: Any
    given: set[int]  # ids of the tensors that it was given, for as long as it runs
    random: dict[str, Any]
    with_gradients: bool
    autocast: tuple[str, torch.dtype, bool]
    gradients: list[torch.Tensor | None] = field(default_factory=list)  # of each of _outputs


class KeptCalls:
    """Keeps the calls of some modules until close(). Takes the memory of their inputs and gradients."""

    def __init__(self, modules: StandIns) -> None:
        self._calls: list[_Call] = []
        self._open: list[_Call] = []
        self._handles: list[Any] = []
        for name, module in modules.items():
            begin = functools.partial(self._begin, name)
            self._handles.append(module.register_forward_pre_hook(begin, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._end, with_kwargs=True))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def run_again(self, modules: StandIns) -> None:
        """Calls these modules, by their names, as they were called; a backward follows where one did."""
        for call in self._calls:
            module = modules[call.name]
            args, kwargs = pytree.tree_map(_again, (call.args, call.kwargs))
            given = _ids((args, kwargs))
            device, dtype, enabled = call.autocast
            restore_random_state(call.random)
            with torch.set_grad_enabled(call.with_gradients), torch.autocast(device, dtype=dtype, enabled=enabled):
                result = module(*args, **kwargs)
            wanted = [
                (output, gradient)
                for output, gradient in zip(_outputs(result, (args, kwargs), given), call.gradients)
                if gradient is not None and output.requires_grad
            ]
            if wanted:
                torch.autograd.backward([output for output, _ in wanted], [gradient for _, gradient in wanted])

    def _begin(self, name: str, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        device = device_of(module)
        given = _ids((args, kwargs))
        args, kwargs = pytree.tree_map(_kept, (args, kwargs))
        autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        self._open.append(_Call(name, args, kwargs, given, random_state(), torch.is_grad_enabled(), autocast))

    def _end(self, module: torch.nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        call = self._open.pop()
        self._calls.append(call)
        outputs = _outputs(result, (args, kwargs), call.given)
        call.gradients = [None] * len(outputs)
        for index, output in enumerate(outputs):
            if output.requires_grad:
                output.register_hook(functools.partial(_keep_gradient, call.gradients, index))


def _ids(inputs: Any) -> set[int]:
    return {id(each) for each in pytree.tree_leaves(inputs) if isinstance(each, torch.Tensor)}


def _outputs(result: Any, inputs: Any, given: set[int]) -> list[torch.Tensor]:
    """The tensors that a call gave; also those that it put into a list or dict that it was given, as into a cache."""
    left = [each for each in pytree.tree_leaves(inputs) if id(each) not in given]
    return [each for each in [*pytree.tree_leaves(result), *left] if isinstance(each, torch.Tensor)]


def _keep_gradient(gradients: list[torch.Tensor | None], index: int, gradient: torch.Tensor | None) -> None:
    gradients[index] = None if gradient is None else gradient.detach().clone()


def _kept(value: Any) -> Any:
    """What a call cannot change any more."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    try:
        return _Copy().of(value)  # a cache, which the call adds to
    except Exception:
        return value


class _Copy:
    """Copies an object by pickling it, tensors apart: those that are made by operators cannot be pickled."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []

    def of(self, value: Any) -> Any:
        written = io.BytesIO()
        pickler = pickle.Pickler(written)
        pickler.persistent_id = self._aside  # type: ignore[method-assign]
        pickler.dump(value)
        written.seek(0)
        unpickler = pickle.Unpickler(written)
        unpickler.persistent_load = lambda index: _kept(self._tensors[index])  # type: ignore[method-assign]
        return unpickler.load()

    def _aside(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        self._tensors.append(value)
        return len(self._tensors) - 1


def _again(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


__all__ = ["KeptCalls"]

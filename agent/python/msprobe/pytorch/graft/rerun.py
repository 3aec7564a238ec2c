"""A module once more, beside the program: on other inputs, or in a wider dtype."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.func import functional_call

from msprobe.pytorch._with_tensors import mapped, tensors_of
from msprobe.pytorch.free_benchmark.rerun import Arguments, NotRepeatable, autocast, unnoticed

_SHARED = (
    *(str, bytes, int, float, complex, bool, type, types.FunctionType, types.BuiltinFunctionType),
    *(torch.Tensor, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, torch.nn.Module),
    *(list, tuple, dict, slice, type(None), type(...)),
)


def on_inputs(module: torch.nn.Module, args: Any, kwargs: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the module gives with these tensors in the places of its own, in order. NotRepeatable: they do not fit."""
    own = tensors_of((args, kwargs))
    if len(inputs) != len(own):
        raise NotRepeatable(f"the call has {len(own)} tensors, the golden {len(inputs)}")
    fitting = iter([as_like(each, present).clone() for each, present in zip(inputs, own)])
    states = {name: each.detach().clone() for name, each in module.named_buffers()}  # it may change them
    return _run(module, args, kwargs, lambda tensor: next(fitting), states, autocasts=True)


def in_dtype(module: torch.nn.Module, args: Any, kwargs: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    """What the module gives with every floating-point tensor cast: arguments, parameters and buffers."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        wanted = dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(wanted, copy=True)

    states = {name: cast(each) for name, each in (*module.named_parameters(), *module.named_buffers())}
    return _run(module, args, kwargs, cast, states, autocasts=False)


def _run(
    module: torch.nn.Module,
    args: Any,
    kwargs: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
    states: dict[str, torch.Tensor],
    *,
    autocasts: bool,
) -> list[torch.Tensor]:
    """states: stand in for parameters and buffers. NotRepeatable: the call draws numbers, or is traced."""
    given = Arguments(args, kwargs)
    given.refuse_unrepeatable()
    with torch.no_grad(), autocast(given.autocasts(), autocasts), unnoticed(given.devices):
        args, kwargs = mapped((args, kwargs), change)
        args = tuple(map(_apart, args))
        kwargs = {name: _apart(value) for name, value in kwargs.items()}
        return [each.detach() for each in tensors_of(functional_call(module, states, args, kwargs))]


def _apart(value: Any) -> Any:
    """A copy of an object that the module may change, such as a cache, with copies of its tensors."""
    if isinstance(value, _SHARED):
        return value
    memo: dict[int, Any] = {}
    _copy_tensors(value, memo, set())
    try:
        return copy.deepcopy(value, memo)
    except Exception as error:  # objects say anything
        raise NotRepeatable(f"its argument of type {type(value).__name__} cannot be copied: {error}") from None


def _copy_tensors(value: Any, copies: dict[int, Any], seen: set[int]) -> None:
    """Into `copies`, by id: of tensors that autograd made, which cannot be copied with what holds them."""
    if isinstance(value, torch.Tensor):
        copies[id(value)] = value.detach().clone()
    elif id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, (list, tuple, set)):
            parts = list(value)
        else:
            parts = list((value if isinstance(value, dict) else getattr(value, "__dict__", {})).values())
        for part in parts:
            _copy_tensors(part, copies, seen)


def as_like(stored: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """With the device and dtype of the program's own. NotRepeatable: another shape, or another kind of number."""
    if stored.shape != own.shape:
        raise NotRepeatable(f"the golden has {list(stored.shape)}, the call {list(own.shape)}")
    if stored.is_floating_point() != own.is_floating_point() or stored.is_complex() != own.is_complex():
        raise NotRepeatable(f"the golden has {stored.dtype}, the call {own.dtype}")
    return stored.to(own.device, own.dtype)


__all__ = ["as_like", "in_dtype", "on_inputs"]

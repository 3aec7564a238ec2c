"""Calls of MindSpore's optimizers, shown to whom they concern: before one takes its gradients, and after."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from mindspore import Tensor, nn
from mindspore.experimental import optim as experimental  # of which those of mindspore.mint are

from msprobe._common.contained import UntilFirstError
from msprobe._common.errors import MsprobeError
from msprobe._common.swaps import AttributeSwap
from msprobe.mindspore._program_error import raise_program_error

_MOMENTS = ("exp_avg", "exp_avg_sq", "moment1", "moment2", "moments1", "moments2", "moments", "accum")
# What each optimizer calls one of the two that torch has: those of mint, then the others.
_NAMES = {"exp_avg": ("exp_avg", "moment1", "moments1"), "exp_avg_sq": ("exp_avg_sq", "moment2", "moments2")}
_KINDS = (nn.Optimizer, experimental.Optimizer)


class Observer(Protocol):
    """Each is called on the program's thread. What it raises goes no further, and is the last that it is shown."""

    def stepping(self, optimizer: Any, gradients: Mapping[int, Tensor]) -> None:
        """It is about to step. gradients: by the identity of their parameters."""

    def stepped(self, optimizer: Any) -> None:
        """It has stepped."""


class _Shown:
    """One of them, and what contains its errors."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._contain = UntilFirstError("calls of optimizers are shown")

    def before(self, optimizer: Any, gradients: Any) -> None:
        self._contain(lambda: self.observer.stepping(optimizer, _by_parameter(optimizer, gradients)))

    def after(self, optimizer: Any) -> None:
        self._contain(lambda: self.observer.stepped(optimizer))


_lock = threading.Lock()
_observers: list[_Shown] = []
_swaps: list[AttributeSwap] = []
_inside = threading.local()


def is_optimizer(value: Any) -> bool:
    return isinstance(value, _KINDS)


def observe(observer: Observer) -> None:
    """Shows it every call of every optimizer, as long as it is not in a function that mindspore.jit compiles."""
    with _lock:
        _observers.append(_Shown(observer))
        if not _swaps:
            _swaps.extend(AttributeSwap(kind, "__call__", _call) for kind in _KINDS)
            for swap in _swaps:
                swap.install()


def leave(observer: Observer) -> None:
    with _lock:
        _observers[:] = [shown for shown in _observers if shown.observer is not observer]
        if not _observers:
            for swap in _swaps:
                swap.restore()
            _swaps.clear()


def unwrapped(optimizer: Any) -> Any:
    """MsprobeError: neither it nor its attribute optimizer is one of MindSpore's."""
    inner = optimizer if is_optimizer(optimizer) else getattr(optimizer, "optimizer", None)
    if not is_optimizer(inner):
        raise MsprobeError(
            f"optimizer is a {type(optimizer).__name__}; it should be one of mindspore.nn or mindspore.mint.optim, or "
            "wrap one as its attribute optimizer"
        )
    return inner


def moments_of(optimizer: Any) -> dict[str, dict[int, Tensor]]:
    """Those that it has: by the name of its attribute, and there by the identity of the parameter."""
    parameters, named = optimizer.parameters, ((name, getattr(optimizer, name, None)) for name in _MOMENTS)
    return {
        name: {id(parameter): state for parameter, state in zip(parameters, states)}
        for name, states in named
        if isinstance(states, (list, tuple)) and len(states) == len(parameters)
    }


def moment_of(moments: Mapping[str, Mapping[int, Tensor]], parameter: Any, name: str) -> Tensor | None:
    """moments: what moments_of gives. name: exp_avg or exp_avg_sq, whatever the optimizer calls it."""
    of_parameters = next((moments[each] for each in _NAMES[name] if each in moments), {})
    return of_parameters.get(id(parameter))


def _call(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of __call__, which both classes have of nn.Cell."""
    if getattr(_inside, "steps", False):  # an optimizer that calls another one
        return nn.Cell.__call__(optimizer, *args, **kwargs)
    _inside.steps = True
    observers = list(_observers)
    try:
        for each in observers:
            each.before(optimizer, args[0] if args else kwargs.get("gradients"))
        result = nn.Cell.__call__(optimizer, *args, **kwargs)
        for each in observers:
            each.after(optimizer)
    finally:
        _inside.steps = False
    raise_program_error()
    return result


def _by_parameter(optimizer: Any, gradients: Any) -> dict[int, Tensor]:
    """Those that are tensors: of an embedding a sparse one may come, which is none."""
    if not isinstance(gradients, (list, tuple)):
        return {}
    pairs = zip(optimizer.parameters, gradients)
    return {id(parameter): gradient for parameter, gradient in pairs if isinstance(gradient, Tensor)}


__all__ = ["Observer", "is_optimizer", "leave", "moment_of", "moments_of", "observe", "unwrapped"]

"""What a training step does to a model's parameters, shown to an observer where it happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from msprobe._common.contained import UntilFirstError
from msprobe._common.errors import MsprobeError
from msprobe._common.named_parameters import NamedParameters
from msprobe._common.swaps import CodeSwap
from msprobe.pytorch._shards import local

_inside = threading.local()
_CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")


class Observer(Protocol):
    """Each is called on the program's thread, or a thread of its backward pass, and raises nothing into it."""

    def accumulated(self, name: str, parameter: torch.nn.Parameter, micro_batch: int) -> None:
        """A backward pass has added to the gradient. Nobody has reduced it across ranks yet."""

    def clipping(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        """The gradients are about to be clipped."""

    def stepping(self, optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> None:
        """The optimizer is about to step."""

    def stepped(self, optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> None:
        """It has stepped."""

    def skipped(self, optimizer: torch.optim.Optimizer) -> None:
        """A GradScaler found NaN or infinity in the gradients: the optimizer does not step."""


class TrainingWatch:
    """Hooks on parameters and optimizers, none of which changes what they compute. Everything goes with close()."""

    def __init__(self, observer: Observer, *, accumulation: bool, clipping: bool = True) -> None:
        """accumulation: whether the observer is shown what each backward pass adds; clipping: and what is clipped, and
        what a GradScaler scales."""
        self._observer, self._accumulation = observer, accumulation
        self._named = NamedParameters(self._watch)
        self._micro_batches: dict[torch.nn.Parameter, int] = {}
        self._handles: list[Any] = []
        self._contain = UntilFirstError("the training is watched")
        self._scaler: Any = None  # whose scale the gradients have, since its scale() and until its update()
        self._unscaled: set[int] = set()  # ids of parameters whose gradients have lost it
        self._has_stepped = False
        names = [name for name in _CLIPPING if clipping and _function(name) is not None]
        self._swaps = [_swap_of(name, self._before_clipping) for name in names]
        if clipping:
            self._swaps += [CodeSwap(function, intercept) for function, intercept in self._of_scalers()]
        for swap in self._swaps:
            swap.install()
            swap.function.__dict__["_torchdynamo_disable"] = True  # its code is none to trace: the call stays a call

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return {name: parameter for parameter, name in self._named.watched.items()}

    def scale_of(self, parameter: torch.nn.Parameter) -> torch.Tensor | None:
        """By how much a GradScaler has multiplied the gradient that the parameter has now; None: by nothing."""
        return None if self._scaler is None or id(parameter) in self._unscaled else self._scaler._scale

    def add_model(self, named: Iterable[tuple[str, torch.nn.Parameter]]) -> list[str]:
        """The names of those that need no gradient. Each is watched from the first step on at which it needs one."""
        return self._named.add(named)

    def add_optimizer(self, optimizer: Any) -> None:
        """None: every optimizer of torch.optim that steps one of the parameters."""
        before, after = self._before_step, self._after_step
        if optimizer is None:
            self._handles += [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
            return
        wrapped = unwrapped(optimizer)
        self._handles += [wrapped.register_step_pre_hook(before), wrapped.register_step_post_hook(after)]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for swap in reversed(self._swaps):
            if swap.function.__code__ is swap.shim:
                swap.restore()
                swap.function.__dict__.pop("_torchdynamo_disable", None)
        self._swaps.clear()

    def _watch(self, _name: str, parameter: torch.nn.Parameter) -> None:
        if self._accumulation and local(parameter) is parameter:  # a shard's gradient comes reduced
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._after_accumulation))

    def _after_accumulation(self, parameter: torch.nn.Parameter) -> None:
        count = self._micro_batches.get(parameter, 0)
        self._micro_batches[parameter] = count + 1
        self._contain(lambda: self._observer.accumulated(self._named.watched[parameter], parameter, count))

    def _before_clipping(self, clipped: list[Any]) -> None:
        self._named.watch_unfrozen(self._named.frozen)
        ids = {id(each) for each in clipped}
        ours = {name: parameter for parameter, name in self._named.watched.items() if id(parameter) in ids}
        if ours:
            self._contain(lambda: self._observer.clipping(ours))

    def _of_scalers(self) -> list[tuple[Any, Callable[[Any], Any]]]:
        """The functions of GradScaler that say when gradients are scaled, and what stands in for each."""

        def scaling(twin: Any) -> Any:
            def scale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
                scaled = twin(scaler, *args, **kwargs)
                if scaler.is_enabled():
                    self._scaler = scaler
                return scaled

            return scale

        def unscaling(twin: Any) -> Any:
            def unscale(scaler: Any, optimizer: Any) -> Any:
                twin(scaler, optimizer)
                self._unscaled.update(id(each) for group in optimizer.param_groups for each in group["params"])

            return unscale

        def stepping(twin: Any) -> Any:
            def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                self._has_stepped = False
                result = twin(scaler, optimizer, *args, **kwargs)
                if not self._has_stepped and self._of(optimizer):
                    self._contain(lambda: self._skip(optimizer))
                return result

            return step

        def updating(twin: Any) -> Any:
            def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
                self._scaler = None
                self._unscaled.clear()
                return twin(scaler, *args, **kwargs)

            return update

        kind = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        swapped = {"scale": scaling, "unscale_": unscaling, "step": stepping, "update": updating}
        return [(getattr(kind, name), intercept) for name, intercept in swapped.items()]

    def _skip(self, optimizer: Any) -> None:
        for parameter in self._of(optimizer).values():
            self._micro_batches.pop(parameter, None)
        self._observer.skipped(optimizer)

    def _of(self, optimizer: Any) -> dict[str, torch.nn.Parameter]:
        watched = self._named.watched
        stepped = (parameter for group in optimizer.param_groups for parameter in group["params"])
        return {watched[parameter]: parameter for parameter in stepped if parameter in watched}

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._named.watch_unfrozen(self._named.frozen)
        ours = self._of(optimizer)
        if ours:
            self._contain(lambda: self._observer.stepping(optimizer, ours))

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._has_stepped = True
        ours = self._of(optimizer)
        if ours:
            for parameter in ours.values():
                self._micro_batches.pop(parameter, None)
            self._contain(lambda: self._observer.stepped(optimizer, ours))


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer of torch.optim inside those that wrap it. MsprobeError: there is none."""
    inner = optimizer
    while getattr(inner, "optimizer", None) is not None:  # accelerate's wrapper is an Optimizer itself, without hooks
        inner = inner.optimizer
    if not isinstance(inner, torch.optim.Optimizer):
        raise MsprobeError(
            f"optimizer is a {type(optimizer).__name__}; it should be a torch.optim.Optimizer, or wrap one as its "
            "attribute optimizer"
        )
    return inner


def model_itself(model: torch.nn.Module) -> torch.nn.Module:
    """Whatever wraps it (DistributedDataParallel, torch.compile)."""
    inner: Any = model
    while isinstance(inner, torch.nn.parallel.DistributedDataParallel) or hasattr(inner, "_orig_mod"):
        inner = inner._orig_mod if hasattr(inner, "_orig_mod") else inner.module
    return inner


def named_parameters(model: torch.nn.Module) -> Iterable[tuple[str, torch.nn.Parameter]]:
    """By their names in the model itself."""
    return model_itself(model).named_parameters()


def _function(name: str) -> Any:
    return getattr(torch.nn.utils, name, None)


def _swap_of(name: str, before: Callable[[list[Any]], None]) -> CodeSwap:
    def intercept(twin: Any) -> Any:
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            taken = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            if getattr(_inside, "clips", False):  # one of them calls another
                return twin(taken, *args, **kwargs)
            _inside.clips = True
            try:
                before(taken)
                return twin(taken, *args, **kwargs)
            finally:
                _inside.clips = False

        return clip

    return CodeSwap(_function(name), intercept)


__all__ = ["Observer", "TrainingWatch", "model_itself", "named_parameters", "unwrapped"]

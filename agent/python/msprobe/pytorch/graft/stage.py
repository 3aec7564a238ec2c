"""The stage of the chain that gives a module's outputs other values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from msprobe._common import log
from msprobe.pytorch._with_tensors import mapped, tensors_of
from msprobe.pytorch.free_benchmark.rerun import NotRepeatable
from msprobe.pytorch.graft.golden import INPUTS, OUTPUTS, Golden, Missing
from msprobe.pytorch.graft.rerun import as_like, in_dtype, on_inputs

# What a call's outputs become: (full name, module, arguments, keywords) -> from its own to others, in order.
Values = Callable[[list[torch.Tensor]], list[torch.Tensor]]


class Graft:
    """stage(call) -> result, behind the observer: records show the program's arguments and what the program gets.

    The module runs as ever, and its result's tensors get other values, on their device and in their dtype. In autograd
    they stand where the module's own did: gradients go through what the module itself computed. A call whose outputs
    cannot be had keeps its own, is named once, and is in `failed`. Nothing is raised into a call. Threads: any.

    modules: by the names of their records. golden, of this rank, or dtype: where the values come from. inherit: of a
    golden, only what the module itself adds is taken out: its output is the golden's, plus what the module makes of the
    difference between its own inputs and the golden's. A module inside of another of them is left to that one then.
    """

    def __init__(
        self,
        modules: Mapping[str, torch.nn.Module],
        *,
        golden: Golden | None = None,
        dtype: torch.dtype | None = None,
        inherit: bool = False,
        rank: int | None = None,
    ) -> None:
        self._modules = modules
        self._golden, self._dtype, self._inherit, self._rank = golden, dtype, inherit, rank
        self.grafted: set[str] = set()  # full names of calls
        self.failed: dict[str, str] = {}  # and why
        self._lock = threading.Lock()
        self._inside = threading.local()

    def __call__(self, call: Any) -> Any:
        outer: str = getattr(self._inside, "name", "")
        if self._inherit and outer:
            with self._lock:
                self.grafted.add(call.name)
            return call(*call.args, **call.kwargs)
        values = self._contained(call, lambda: self._values(call))
        self._inside.name = call.name
        try:
            result = call(*call.args, **call.kwargs)
        finally:
            self._inside.name = outer
        if values is None:
            return result
        replaced = self._contained(call, lambda: _with_values(result, values(tensors_of(result))))
        if replaced is None:
            return result
        with self._lock:
            self.grafted.add(call.name)
        return replaced

    def missed(self, names: Iterable[str]) -> list[str]:
        """Those among these names of records that no call has come by for."""
        seen = {*self.grafted, *self.failed}
        seen |= {name.rsplit(".", 2)[0] for name in seen}
        return [name for name in names if name not in seen]

    def _contained(self, call: Any, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # into the program's forward pass nothing of ours may go
            known = isinstance(error, (NotRepeatable, Missing))
            reason = str(error) if known else f"{type(error).__name__}: {error}"
        with self._lock:
            is_new = call.name not in self.failed
            self.failed[call.name] = reason.splitlines()[0] if reason else "unknown"
        if is_new:
            log.warning(f"graft: {call.name} keeps its own output: {self.failed[call.name]}")
        return None

    def _values(self, call: Any) -> Values:
        """Before the module runs, which may change its arguments."""
        module = self._modules[call.name.rsplit(".", 2)[0]]
        if self._dtype is not None:
            wide = in_dtype(module, call.args, call.kwargs, self._dtype)
            return lambda own: wide
        assert self._golden is not None
        self._golden.begin(call.step, self._rank)
        stored = self._golden.tensors(call.name, OUTPUTS)
        if not self._inherit:
            return lambda own: stored
        local = on_inputs(module, call.args, call.kwargs, self._golden.tensors(call.name, INPUTS))
        return lambda own: _inherited(stored, own, local)


def _inherited(stored: list[torch.Tensor], own: list[torch.Tensor], local: list[torch.Tensor]) -> list[torch.Tensor]:
    """The golden's outputs, plus what the module has made of other inputs than the golden's."""
    if not len(stored) == len(own) == len(local):
        raise NotRepeatable(f"the call gives {len(own)} tensors, the golden has {len(stored)}")
    return [
        _plus_other(as_like(stored_, own_), own_.detach(), local_) for stored_, own_, local_ in zip(stored, own, local)
    ]


def _plus_other(stored: torch.Tensor, own: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """stored + (own - local); bit by bit stored where these agree."""
    if not (own.is_floating_point() or own.is_complex()):
        return stored
    wide = (
        torch.float64
        if own.is_floating_point() and own.device.type == "cpu"
        else torch.promote_types(own.dtype, torch.float32)
    )
    other = stored.to(wide) + (own.to(wide) - local.to(wide))
    agree = (own == local) | (own.isnan() & local.isnan())
    return torch.where(agree, stored, other.to(own.dtype))


def _with_values(result: Any, values: list[torch.Tensor]) -> Any:
    own = tensors_of(result)
    if len(own) != len(values):
        raise NotRepeatable(f"the call gives {len(own)} tensors, what replaces them is {len(values)}")
    fitting = iter([stand_in(each, as_like(value, each)) for each, value in zip(own, values)])
    return mapped(result, lambda tensor: next(fitting))


def stand_in(own: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A tensor with these values in the place that `own` has in autograd."""
    if not own.requires_grad or not torch.is_grad_enabled():
        return value.clone()
    made: torch.Tensor = _StandIn.apply(own, value)
    return made


class _StandIn(torch.autograd.Function):
    """Other values in the place of a tensor: what arrives as their gradient is that tensor's."""

    @staticmethod
    def forward(context: Any, own: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


__all__ = ["Graft", "stand_in"]

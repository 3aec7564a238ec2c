"""A call once more, on copies of its arguments, so that the program does not notice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch.utils._python_dispatch import _disable_current_modes

from msprobe._common.free_benchmark import rerun
from msprobe._common.free_benchmark.rerun import NotRepeatable


class Arguments(rerun.Arguments):
    """Those of one call."""

    kind = torch.Tensor

    def refuse_unrepeatable(self) -> None:
        """NotRepeatable: the call draws numbers, or what runs now is recorded for later."""
        if torch._C._get_tracing_state() is not None:
            raise NotRepeatable("the program is being traced")
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise NotRepeatable("it is under a transform of torch.func")
        for value in (*self._args, *self._kwargs.values()):
            if isinstance(value, torch.Generator):
                raise NotRepeatable("it draws random numbers")
        for device in self.devices:
            capturing = getattr(torch.get_device_module(device), "is_current_stream_capturing", None)
            if capturing is not None and capturing():
                raise NotRepeatable("a graph of the device is being captured")

    def autocasts(self) -> list[tuple[str, torch.dtype]]:
        """(type of device, dtype) of each autocast that the call is under now."""
        kinds = sorted({"cpu", *(each.type for each in self.devices)})
        return [(kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind)]

    @property
    def devices(self) -> list[torch.device]:
        """Without the CPU."""
        return list({each.device for each in self.tensors if each.device.type not in ("cpu", "meta")})


@contextlib.contextmanager
def unnoticed(devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """What runs inside leaves random generators as they were, and modes of the program do not see it.

    NotRepeatable: it drew from a generator.
    """
    before = [(torch.set_rng_state, torch.get_rng_state())]
    for device in devices:
        module = torch.get_device_module(device)
        before.append((lambda state, m=module, d=device: m.set_rng_state(state, d), module.get_rng_state(device)))
    drawn = False
    try:
        with _disable_current_modes():
            yield
    finally:
        now = [torch.get_rng_state()] + [torch.get_device_module(each).get_rng_state(each) for each in devices]
        for (restore, state), present in zip(before, now):
            if not torch.equal(state, present):
                drawn = True
                restore(state)
    if drawn:
        raise NotRepeatable("it draws random numbers")


@contextlib.contextmanager
def autocast(states: list[tuple[str, torch.dtype]], enabled: bool) -> Iterator[None]:
    """Under these autocasts, or without them."""
    with contextlib.ExitStack() as stack:
        for kind, dtype in states:
            stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        yield


__all__ = ["Arguments", "NotRepeatable", "autocast", "unnoticed"]

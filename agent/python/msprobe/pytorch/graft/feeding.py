"""The stage of the chain that gives every module the golden's inputs."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe.pytorch._with_tensors import mapped, tensors_of
from msprobe.pytorch.free_benchmark.rerun import NotRepeatable
from msprobe.pytorch.graft.golden import INPUTS, Missing, golden_of
from msprobe.pytorch.graft.rerun import as_like
from msprobe.pytorch.graft.stage import stand_in


class GoldenInputs:
    """stage(call) -> result, before the observer: the records show the inputs that the modules were given.

    Gradients go where they would have gone. A call that the golden does not have keeps its own inputs. Threads: any.
    """

    def __init__(self, source: Any, step: int | None, server: str) -> None:
        if not isinstance(source, (str, os.PathLike)):
            raise MsprobeError(f"local_error: golden is {source!r}; it should be a dump directory, or run:NAME")
        self._golden = golden_of(source, step, server)
        self._failed: dict[str, str] = {}
        self._lock = threading.Lock()

    def begin(self, step: int, rank: int | None) -> None:
        """The step of the first pass. MsprobeError: the golden does not have it."""
        self._golden.begin(step, rank)

    def __call__(self, call: Any) -> Any:
        args, kwargs = call.args, call.kwargs
        try:
            args, kwargs = self._fed(call)
        except Exception as error:  # into the program's forward pass nothing of ours may go
            known = isinstance(error, (Missing, NotRepeatable))
            with self._lock:
                self._failed[call.name] = str(error) if known else f"{type(error).__name__}: {error}"
        return call(*args, **kwargs)

    def tell_failed(self) -> None:
        if self._failed:
            name, why = next(iter(self._failed.items()))
            log.warning(f"local_error: {len(self._failed)} calls kept their own inputs; {name}: {why}")

    def _fed(self, call: Any) -> tuple[Any, Any]:
        inputs = self._golden.tensors(call.name, INPUTS)
        own = tensors_of((call.args, call.kwargs))
        if len(inputs) != len(own):
            raise NotRepeatable(f"the call has {len(own)} tensors, the golden {len(inputs)}")
        fitting: list[torch.Tensor] = [stand_in(each, as_like(value, each)) for each, value in zip(own, inputs)]
        remaining = iter(fitting)
        args, kwargs = mapped((call.args, call.kwargs), lambda tensor: next(remaining))
        return args, kwargs


__all__ = ["GoldenInputs"]

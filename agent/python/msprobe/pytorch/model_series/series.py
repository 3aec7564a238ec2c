"""All of model_series, for one debugger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from msprobe import _agent
from msprobe._common import log
from msprobe.pytorch.model_series.attention import Attention
from msprobe.pytorch.model_series.experts import Experts
from msprobe.pytorch.model_series.part import Modules, Parameters, Part
from msprobe.pytorch.model_series.scales import Scales
from msprobe.pytorch.model_series.tokens import Tokens
from msprobe.pytorch.model_series.weights import Weights


class ModelSeries:
    """The parts that the configuration names, and the sink of their numbers (part.Sink).

    debugger: of task monitor, with its session open.
    """

    def __init__(self, debugger: Any) -> None:
        self._debugger = debugger
        self._failed = False
        self._suppressed = _agent.intercept(lambda action: action(), "suppress")
        config = debugger.config
        self._selector = _agent.Selector(config.select) if config.select else None
        self._types: dict[str, str] = {}
        made: dict[str, Callable[[], Part]] = {
            "attention": lambda: Attention(self),
            "experts": lambda: Experts(self, config.routers),
            "weights": lambda: Weights(self),
            "tokens": lambda: Tokens(self),
            "scales": lambda: Scales(self),
        }
        self._parts = {name: made[name]() for name in config.model_series}
        self._has_stepped = False

    def add(self, modules: Modules) -> None:
        """The modules of one model, the model itself first."""
        named = list(modules)
        self._types.update((name, type(module).__name__) for name, module in named)
        for part in self._parts.values():
            part.add(named)

    def stepped(self, parameters: Parameters) -> None:
        for name, part in self._parts.items():
            if not self._has_stepped and part.missed():
                log.warning(f"model_series: {name} has no series: no module of the model fits {part.missed()}")
            part.stepped(parameters)
        self._has_stepped = True

    def close(self) -> None:
        for part in self._parts.values():
            part.close()

    # part.Sink

    def samples(self) -> bool:
        debugger = self._debugger
        return not self._failed and debugger.watches_step and debugger._samples(self.step())

    def selects(self, module: str) -> bool:
        record = ".".join(part for part in ("Module", module, self._types[module]) if part)
        return self._selector is None or self._selector.takes_module(record)

    def step(self) -> int:
        service = self._debugger.service
        return int(service.loop + service.init_step)

    def number(self, name: str, value: float | torch.Tensor, step: int | None = None) -> None:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            value = float(value)
        agent = self._debugger._agent
        if agent is not None:
            agent.log(self.step() if step is None else step, [(name, value)])

    def read(self, name: str, tensor: torch.Tensor) -> None:
        self._debugger._agent.read_series(name, tensor)

    def contain(self, action: Callable[[], None]) -> None:
        def quietly() -> None:
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                for device in _devices():
                    stack.enter_context(torch.autocast(device, enabled=False))
                action()

        if self._failed or self._debugger._agent is None:
            return
        try:
            self._suppressed(quietly)
        except Exception as error:
            self._failed = True
            log.warning(f"model_series: nothing more is added to them: {type(error).__name__}: {error}")


def _devices() -> list[str]:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not accelerator.is_available():
        return ["cpu"]
    return ["cpu", accelerator.current_accelerator().type]


__all__ = ["ModelSeries"]

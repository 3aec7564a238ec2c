"""What the parts of model_series have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

Modules = Iterable[tuple[str, torch.nn.Module]]  # by their names in the model
Parameters = dict[str, torch.nn.Parameter]


class Sink(Protocol):
    """Where a part's numbers go. Nothing of it waits for a device."""

    def samples(self) -> bool:
        """Whether this step is one whose modules are looked at."""

    def selects(self, module: str) -> bool:
        """Whether the field select takes the module."""

    def step(self) -> int: ...

    def number(self, name: str, value: float | torch.Tensor, step: int | None = None) -> None:
        """A point of a series. step: by default the present one."""

    def read(self, name: str, tensor: torch.Tensor) -> None:
        """The statistics of a tensor, a series each."""

    def contain(self, action: Callable[[], None]) -> None:
        """Runs it unrecorded, without gradients and with autocast off. What it raises is logged, and ends the part."""


class Part(Protocol):
    """One name of model_series. Its hooks change nothing that the program computes."""

    def add(self, modules: Modules) -> None:
        """The modules of one model, the model itself first."""

    def missed(self) -> str:
        """What it looked for, if none of the models' modules is that; else empty."""

    def stepped(self, parameters: Parameters) -> None:
        """The optimizer has updated these parameters. Called in every step that becomes series."""

    def close(self) -> None: ...


def first_tensor(value: Any) -> torch.Tensor | None:
    """The tensor itself, or the first element of a tuple or list, or of a ModelOutput."""
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value if isinstance(value, torch.Tensor) else None

"""Which modules of a model are compiled, and putting what stands in for them in and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

StandIns = dict[str, torch.nn.Module]  # name in the model, "" for the model itself -> what is called there


class CastModule(torch.nn.Module):
    """Calls a module under autocast on the module's device."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self.dtype = dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type=device_of(self.module), dtype=self.dtype):
            return self.module(*args, **kwargs)


def device_of(module: torch.nn.Module) -> str:
    return next((tensor.device.type for tensor in module.parameters()), "cpu")


def outermost(model: torch.nn.Module, wanted: Callable[[torch.nn.Module], bool]) -> StandIns:
    """The wanted modules that lie in no other wanted one; the model itself where none is wanted."""
    found: StandIns = {}
    for name, module in model.named_modules():
        if wanted(module) and not any(is_inside(name, other) for other in found):
            found[name] = module
    return found or {"": model}


def is_inside(name: str, outer: str) -> bool:
    return name != outer and (not outer or name.startswith(outer + "."))


@contextmanager
def placed(model: torch.nn.Module, modules: StandIns, stand_ins: StandIns) -> Iterator[torch.nn.Module]:
    """Gives the model with other modules at these places, as long as the context lasts."""
    replaced = replace(model, modules, stand_ins)
    try:
        yield stand_ins.get("", model)
    finally:
        for members, key, module in replaced:
            members[key] = module


def replace(model: torch.nn.Module, modules: StandIns, stand_ins: StandIns) -> list[tuple[Any, str, torch.nn.Module]]:
    """Puts them in, wherever the model holds the modules; gives what to put back where."""
    by_id = {id(module): stand_ins[name] for name, module in modules.items() if name}
    replaced = []
    for parent in model.modules():
        for key, child in parent._modules.items():
            if child is not None and id(child) in by_id:
                replaced.append((parent._modules, key, child))
    for members, key, child in replaced:
        members[key] = by_id[id(child)]
    return replaced

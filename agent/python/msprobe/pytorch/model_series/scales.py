"""Scale factors of quantised modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from msprobe.pytorch.model_series.part import Modules, Parameters, Sink

_OF_WEIGHTS = (
    "scale",
    "_scale",
    "_scale_inv",
)  # attributes of tensors that carry their scale: torchao, TransformerEngine
_OF_META = ("scale", "scale_inv")  # of each entry of TransformerEngine's fp8_meta
_META = ("scaling_fwd", "scaling_bwd")


class Scales:
    """Every scale that a module keeps: as a parameter or buffer, in fp8_meta, or with a weight."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._modules: list[tuple[str, torch.nn.Module]] = []

    def add(self, modules: Modules) -> None:
        self._modules += [(name, module) for name, module in modules if self._sink.selects(name)]

    def missed(self) -> str:
        return ""

    def stepped(self, parameters: Parameters) -> None:
        self._sink.contain(self._look)

    def _look(self) -> None:
        for name, module in self._modules:
            for place, scale in scales_of(module):
                if scale.numel() and scale.is_floating_point():
                    self._sink.read(f"{name}.{place}.scale" if name else f"{place}.scale", scale.detach())

    def close(self) -> None:
        self._modules.clear()


def scales_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(where it stands in the module, scale)."""
    for kept in (module._parameters, module._buffers):
        for name, tensor in kept.items():
            if tensor is None:
                continue
            if _is_scale(name):
                yield name, tensor
                continue
            for attribute in _OF_WEIGHTS if type(tensor) is not torch.nn.Parameter else ():
                scale = getattr(tensor, attribute, None)
                if isinstance(scale, torch.Tensor):
                    yield name, scale
                    break
    meta: Any = getattr(module, "fp8_meta", None)
    for entry in _META if isinstance(meta, dict) else ():
        for attribute in _OF_META:
            scale = getattr(meta.get(entry), attribute, None)
            if isinstance(scale, torch.Tensor):
                yield f"fp8_meta.{entry}.{attribute}", scale


def _is_scale(name: str) -> bool:
    """weight_scale_inv of DeepSeek, weight_scale and input_scale of others, fp8_scale_weight of torchao."""
    words = name.split("_")
    return "scale" in words or "scales" in words

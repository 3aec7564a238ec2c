"""How alike the tokens of hidden states are."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.pytorch.model_series.part import Modules, Parameters, Sink, first_tensor

_MOST = 256  # tokens that are looked at, which lie evenly in the first sequence of the batch


class Tokens:
    """The mean cosine between two tokens of the output of each layer: of the modules in a ModuleList."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._handles: list[Any] = []

    def add(self, modules: Modules) -> None:
        found = dict(modules)
        for name, module in found.items():
            owner = found.get(name.rpartition(".")[0])
            if isinstance(owner, torch.nn.ModuleList) and self._sink.selects(name):
                self._handles.append(module.register_forward_hook(self._hook(name)))

    def _hook(self, name: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            states = first_tensor(output)
            if states is not None and states.ndim == 3 and states.is_floating_point() and self._sink.samples():
                self._sink.contain(lambda: self._look(name, states.detach()))

        return hook

    def _look(self, name: str, states: torch.Tensor) -> None:
        tokens = states[0, :: -(-states.shape[1] // _MOST)].float()
        count = len(tokens)
        if count < 2:
            return
        together = torch.nn.functional.normalize(tokens, dim=1).sum(0).square().sum()
        self._sink.number(f"{name}.token_similarity", (together - count) / (count * (count - 1)))

    def missed(self) -> str:
        return "" if self._handles else "a place in a ModuleList"

    def stepped(self, parameters: Parameters) -> None:
        pass

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

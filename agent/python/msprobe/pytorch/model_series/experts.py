"""What the routers of a mixture of experts do."""

from __future__ import annotations

from typing import Any

import torch

from msprobe import _agent
from msprobe.pytorch.model_series.part import Modules, Parameters, Sink, first_tensor

_NAMES_OF_K = ("top_k", "num_experts_per_tok", "k")


class Experts:
    """Of each router: the entropy of what it gives a token, each expert's load, and how many have none."""

    def __init__(self, sink: Sink, routers: str) -> None:
        self._sink, self._routers, self._predicate = sink, _agent.Selector(routers), routers
        self._handles: list[Any] = []
        self._seen: dict[str, tuple[torch.Tensor, torch.Tensor, int]] = {}  # tokens of experts, entropies, tokens

    def add(self, modules: Modules) -> None:
        found = dict(modules)
        for name, module in found.items():
            record = ".".join(part for part in ("Module", name, type(module).__name__) if part)
            if self._routers.takes_module(record) and self._sink.selects(name):
                block = found.get(name.rpartition(".")[0])
                self._handles.append(module.register_forward_hook(self._hook(name, _chosen(module, block))))

    def _hook(self, name: str, chosen: int) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            logits = first_tensor(output)
            if logits is not None and logits.is_floating_point() and logits.ndim >= 2 and self._sink.samples():
                self._sink.contain(lambda: self._look(name, chosen, logits.detach(), output))

        return hook

    def _look(self, name: str, chosen: int, logits: torch.Tensor, output: Any) -> None:
        experts = logits.shape[-1]
        logarithms = logits.reshape(-1, experts).float().log_softmax(-1)
        if experts < 2 or not len(logarithms):
            return
        entropy = -(logarithms.exp() * logarithms).sum(-1).nan_to_num().sum()
        indices = _indices(output, len(logarithms))
        if indices is None:
            indices = logarithms.topk(min(chosen, experts), -1).indices
        flat = indices.reshape(-1).clamp(0, experts - 1).long()
        if len(flat) >= experts * len(logarithms):
            return  # every token goes to every expert: nothing is chosen
        load = torch.zeros(experts, device=logits.device).scatter_add_(
            0, flat, torch.ones_like(flat, dtype=torch.float)
        )
        before = self._seen.get(name)
        tokens = len(logarithms)
        if before is not None and len(before[0]) == experts:
            load, entropy, tokens = before[0] + load, before[1] + entropy, before[2] + tokens
        self._seen[name] = load, entropy, tokens

    def missed(self) -> str:
        return "" if self._handles else f"the field routers, which is {self._predicate}"

    def stepped(self, parameters: Parameters) -> None:
        seen, self._seen = self._seen, {}
        if self._sink.samples():
            self._sink.contain(lambda: self._tell(seen))

    def _tell(self, seen: dict[str, tuple[torch.Tensor, torch.Tensor, int]]) -> None:
        for name, (load, entropy, tokens) in seen.items():
            self._sink.read(f"{name}.expert_load", load / tokens)
            self._sink.number(f"{name}.dead_experts", (load == 0).sum().float())
            self._sink.number(f"{name}.router_entropy", entropy / tokens)

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _chosen(*owners: torch.nn.Module | None) -> int:
    """How many experts a token goes to, as the router or its block has it; else 1."""
    for owner in owners:
        for name in _NAMES_OF_K:
            value = getattr(owner, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return 1


def _indices(output: Any, tokens: int) -> torch.Tensor | None:
    """The experts that a router itself has chosen, where it gives them."""
    for each in output[1:] if isinstance(output, (tuple, list)) else ():
        if isinstance(each, torch.Tensor) and each.dtype in (torch.int64, torch.int32) and each.numel():
            return each.detach() if each.numel() % tokens == 0 else None
    return None

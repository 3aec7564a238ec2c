"""Entropy and largest logit of each head of attention."""

from __future__ import annotations

import atexit
import functools
import math
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.swaps import AttributeSwap
from msprobe.pytorch.model_series.part import Modules, Parameters, Sink

_MOST_ROWS = 64  # queries that are looked at, which lie evenly in the first sequence of the batch
_MOST_WAITING = 64  # calls whose rows wait for the worker
_MOST_BYTES = 256 << 20  # and their bytes
_PATIENCE_S = 10.0  # for the worker, when the program ends

Rows = Callable[[], tuple[torch.Tensor, torch.Tensor]]  # logits of (heads, queries, keys), and their probabilities


class Attention:
    """Looks at softmax and scaled_dot_product_attention as modules of attention call them.

    Rows of the program's tensors are copied where they are; a thread of its own computes the rest of it, as long as no
    more wait for it than it may keep. What a device holds is computed there at once, and nobody waits.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._handles: list[Any] = []
        self._inside = threading.local()
        self._worker = Worker()
        functional = torch.nn.functional
        self._swaps = [
            AttributeSwap(functional, "softmax", self._around(functional.softmax, self._of_softmax)),
            AttributeSwap(
                functional,
                "scaled_dot_product_attention",
                self._around(functional.scaled_dot_product_attention, self._of_fused),
            ),
        ]

    def add(self, modules: Modules) -> None:
        for name, module in modules:
            if "Attention" in type(module).__name__ and self._sink.selects(name):
                self._handles.append(module.register_forward_pre_hook(functools.partial(self._enter, name)))
                self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        for swap in self._swaps if self._handles else ():
            swap.install()

    def missed(self) -> str:
        return "" if self._handles else 'a class with "Attention" in its name'

    def stepped(self, parameters: Parameters) -> None:
        pass

    def close(self) -> None:
        for swap in self._swaps:
            swap.restore()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._worker.close()

    def _stack(self) -> list[str]:
        if not hasattr(self._inside, "names"):
            self._inside.names = []
        return self._inside.names

    def _enter(self, name: str, _module: Any, _args: Any) -> None:
        if not torch.compiler.is_compiling():
            self._stack().append(name)

    def _leave(self, _module: Any, _args: Any, _output: Any) -> None:
        if not torch.compiler.is_compiling() and self._stack():
            self._stack().pop()

    def _around(self, original: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and self._stack() and self._sink.samples():
                name = self._stack()[-1]
                self._sink.contain(lambda: look(name, *args, **kwargs))
            return original(*args, **kwargs)

        return called

    def _of_softmax(self, name: str, input: torch.Tensor, dim: int | None = None, *_: Any, **__: Any) -> None:
        if input.ndim < 3 or dim not in (-1, input.ndim - 1) or not input.is_floating_point():
            return
        first = input.detach()[0] if input.ndim > 3 else input.detach()
        rows = first[:, :: _stride(first.shape[1])].clone()
        self._hand_on(name, lambda: (rows.float(), rows.float().softmax(-1)), [rows])

    def _of_fused(
        self,
        name: str,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        if query.ndim < 3 or query.is_nested:
            return
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        stride = _stride(query.shape[-2])
        heads = query.shape[-3] if query.ndim > 3 else query.shape[0]
        queries = (query.detach()[0] if query.ndim > 3 else query.detach())[:, ::stride].clone()
        keys = (key.detach()[0] if key.ndim > 3 else key.detach()).clone()
        places = torch.arange(0, query.shape[-2], stride, device=query.device)
        mask = None
        if attn_mask is not None:
            whole = attn_mask.detach().expand(*attn_mask.shape[:-2], query.shape[-2], attn_mask.shape[-1])
            while whole.ndim > 3:
                whole = whole[0]
            mask = whole[..., ::stride, :].clone()

        def rows() -> tuple[torch.Tensor, torch.Tensor]:
            wide = keys.float()
            if wide.shape[0] != heads:  # fewer heads of keys, each of which several of queries share
                wide = wide.repeat_interleave(heads // wide.shape[0], 0)
            logits = queries.float() @ wide.transpose(-1, -2) * factor
            if is_causal:
                later = torch.arange(logits.shape[-1], device=logits.device)[None, :] > places[:, None]
                logits = logits.masked_fill(later, -math.inf)
            if mask is not None:
                logits = logits.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else logits + mask.float()
            return logits, logits.softmax(-1)

        self._hand_on(name, rows, [queries, keys] + ([] if mask is None else [mask]))

    def _hand_on(self, name: str, rows: Rows, held: list[torch.Tensor]) -> None:
        step = self._sink.step()

        def tell() -> None:
            logits, shares = rows()
            entropies = -(shares * shares.clamp_min(1e-30).log()).sum(-1).nan_to_num().mean(-1)
            finite = logits.masked_fill(logits.isinf() | (logits < -1e30), -math.inf)  # masks are no logits
            largest = finite.amax((-1, -2))
            for kind, values in (("attention_entropy", entropies), ("attention_logit", largest)):
                self._sink.number(f"{name}.{kind}:max", values.amax(), step)
                self._sink.number(f"{name}.{kind}:min", values.amin(), step)
                self._sink.number(f"{name}.{kind}:mean", values.mean(), step)
                for head, number in enumerate(values):
                    self._sink.number(f"{name}.{kind}.head.{head}", number, step)

        if held[0].device.type != "cpu":
            tell()
        else:
            self._worker.take(lambda: self._sink.contain(tell), sum(each.nbytes for each in held))


class Worker:
    """Runs what it is given in a thread of its own, one after the other. What is too much for it is left out."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[Callable[[], None], int] | None] = queue.Queue(_MOST_WAITING)
        self._bytes = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._told = False

    def take(self, action: Callable[[], None], held: int) -> None:
        with self._lock:
            fits = self._bytes + held <= _MOST_BYTES and not self._waiting.full()
            self._bytes += held if fits else 0
        if not fits:
            if not self._told:
                self._told = True
                log.warning(
                    "model_series: attention is looked at more slowly than it is computed; some calls are left out"
                )
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="msprobe-attention", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        self._waiting.put((action, held))

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self.close)
            self._waiting.put(None)
            thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            next_one[0]()
            with self._lock:
                self._bytes -= next_one[1]


def _stride(rows: int) -> int:
    return max(1, -(-rows // _MOST_ROWS))

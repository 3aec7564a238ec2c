#!/usr/bin/env python3
"""One case of mindspore_overhead.py in one process of MindSpore; prints one line of JSON. Runs under this tool or
mindstudio-probe.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from overhead_worker import status_mib, write_config
from own_time import own_seconds

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")


class Attention(nn.Cell):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (mint.nn.Linear(width, width) for _ in range(4))
        # Times a number, it would be an operator that MindSpore does not have on a CPU.
        self.heads, self.scale = heads, Tensor(np.full((1,), (width // heads) ** -0.5, np.float32))

    def construct(self, x: Any) -> Any:
        def split(y: Any) -> Any:
            return mint.transpose(mint.reshape(y, (x.shape[0], x.shape[1], self.heads, -1)), 1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        weights = mint.mul(mint.matmul(query, mint.transpose(key, -1, -2)), self.scale)
        mixed = mint.matmul(mint.nn.functional.softmax(weights, dim=-1), value)
        return self.out(mint.reshape(mint.transpose(mixed, 1, 2), x.shape))


class Block(nn.Cell):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.first, self.second = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.up, self.down = mint.nn.Linear(width, 4 * width), mint.nn.Linear(4 * width, width)

    def construct(self, x: Any) -> Any:
        x = mint.add(x, self.attention(self.first(x)))
        return mint.add(x, self.down(mint.nn.functional.relu(self.up(self.second(x)))))


class Transformer(nn.Cell):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.CellList([Block(width, width // 64) for _ in range(layers)])
        self.head = mint.nn.Linear(width, width)

    def construct(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return mint.mean(self.head(x))


def build(options: argparse.Namespace) -> tuple[nn.Cell, Callable[[], None]]:
    ms.set_seed(1)
    net = Transformer(options.layers, options.hidden)
    x = Tensor(np.random.RandomState(7).randn(1, options.tokens, options.hidden).astype(np.float32))
    weights = net.trainable_params()
    optimizer = nn.SGD(weights, 1e-3)
    gradients_of = ms.value_and_grad(net, None, weights)

    def forward() -> None:
        net(x).asnumpy()

    def training() -> None:
        loss, gradients = gradients_of(x)
        optimizer(gradients)
        loss.asnumpy()
        weights[-1].asnumpy()  # the loss is there before the backward pass is done

    return net, training if options.train else forward


def debugger_of(options: argparse.Namespace) -> Any:
    if os.environ.get("MSPROBE_SHIM"):  # mindstudio-probe calls a kernel that MindSpore does not have on a CPU
        mint.norm = lambda x: ops.norm(x)
    from msprobe.mindspore import PrecisionDebugger

    return PrecisionDebugger(config_path=write_config(options))


def captured(debugger: Any, net: nn.Cell | None, step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        debugger.start(net)
        step()
        debugger.stop()
        debugger.step()

    return run


def settle(debugger: Any, options: argparse.Namespace) -> None:
    if hasattr(debugger, "wait"):
        debugger.wait(120)
    for directory in (options.scratch / "out").glob("step*"):
        shutil.rmtree(directory, ignore_errors=True)


def timed(body: Callable[[], None]) -> float:
    begun = own_seconds()
    body()
    return own_seconds() - begun


@contextmanager
def every_result_awaited(net: nn.Cell) -> Iterator[None]:
    """Meanwhile each cell and each function that the model calls waits for its result, and nothing else is done."""

    def wait(*given: Any) -> None:
        given[-1].data_ptr()

    def waiting(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            wait(result)
            return result

        return run

    functional = mint.nn.functional
    called = [(mint, name) for name in ("add", "matmul", "mean", "mul", "reshape", "transpose")]
    called += [(functional, name) for name in ("linear", "relu", "softmax")]
    originals = [(module, name, getattr(module, name)) for module, name in called]
    hooks = [cell.register_forward_hook(wait) for _, cell in net.cells_and_names()]
    for module, name, original in originals:
        setattr(module, name, waiting(original))
    yield
    for module, name, original in originals:
        setattr(module, name, original)
    for hook in hooks:
        hook.remove()


def steps(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of plain and captured steps and of those that wait for every result: A B C C B A."""
    net, plain = build(options)

    def awaited() -> None:
        with every_result_awaited(net):
            plain()

    for _ in range(8):  # MindSpore tries what is fastest in the first launches of a kernel
        plain()
    debugger = debugger_of(options)
    bodies = {"plain": plain, "captured": captured(debugger, net, plain), "awaited": awaited}
    times: dict[str, list[float]] = {kind: [] for kind in bodies}
    for _ in range(2):
        awaited()
        bodies["captured"]()
        settle(debugger, options)
    for _ in range(options.pairs):
        for kind in ("plain", "captured", "awaited", "awaited", "captured", "plain"):
            times[kind].append(timed(bodies[kind]))
            if kind == "captured":
                settle(debugger, options)
    found: dict[str, Any] = {"times": times}
    if hasattr(debugger, "wait"):
        counters = debugger._agent.counters()
        found["lost"] = counters["faults"] + counters["fragments_dropped"]
        found["records"] = counters["fragments_emitted"] / (len(times["captured"]) + 2)
    return found


def records(options: argparse.Namespace) -> dict[str, Any]:
    """A function of the program's own that gives the 16 elements that it gets, over and over: CPU seconds of the
    caller's thread, in blocks of 1,000. It launches no operator: how long MindSpore's threads spin is not measured."""
    own = types.ModuleType("own")
    own.same = lambda x: x  # type: ignore[attr-defined]
    x = mint.abs(Tensor(np.linspace(-1, 1, 16).astype(np.float32)))
    x.asnumpy()

    def block() -> float:
        same = own.same
        begun = time.thread_time()
        for _ in range(1000):
            same(x)
        return time.thread_time() - begun

    block()
    plain = [block() for _ in range(20)]
    debugger = debugger_of(options)
    debugger.register_custom_api(own, "same")
    debugger.start()
    block()
    blocks = [block() for _ in range(options.blocks)]
    debugger.stop()
    debugger.step()
    settle(debugger, options)
    return {"plain": plain, "blocks": blocks}


def peak(options: argparse.Namespace) -> dict[str, Any]:
    """Peak memory after this number of steps, with the tool imported at the head or not at all."""
    debugger = None if options.plain else debugger_of(options)
    net, plain = build(options)
    body = plain if debugger is None else captured(debugger, net, plain)
    for _ in range(options.pairs):
        body()
    if debugger is not None:
        settle(debugger, options)
    return {"peak_mib": status_mib("VmHWM")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="steps", choices=("steps", "records", "peak"))
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--level", default="mix")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--plain", action="store_true", help="peak: without the tool")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=20)
    chosen = parser.parse_args()
    chosen.task, chosen.summary, chosen.server, chosen.stacks, chosen.edges = "statistics", "statistics", "", True, True
    # The tools print on standard output, which is for the result.
    result_stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    measure = {"steps": steps, "records": records, "peak": peak}[chosen.mode]
    print(json.dumps(measure(chosen)), file=result_stream, flush=True)

"""Compiled models through many starts and stops. Writes the graphs, frames looked at, and digest of each.

--config: under a PrecisionDebugger; absent: without us. --once: one start, and step() alone afterwards.
Models run compiled before the first start, and others of the same kinds are compiled while capturing or between.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import sys
import threading
import types

import torch
import torch.nn.functional as F
from torch._dynamo.backends.registry import lookup_backend


class Functions(torch.nn.Module):
    """Names written in Python: some are put into the graph as they are, the others are inlined."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = F.gelu(self.linear(x)) + F.dropout(x, 0.0, self.training)
        y = F.layer_norm(y, (8,)) * F.softmax(y, -1) + F.normalize(y)
        y = torch.einsum("ij,kj->ik", y, y) @ y + y**2 + 2**y + torch.norm(y) + y.norm()
        a, b = y.split(4, 1)
        y = torch.cat([b, a], 1)
        z, _ = self.attention(y[None], y[None], y[None], need_weights=False)
        return F.silu(z[0]) + y.unflatten(1, (2, 4)).flatten(1)


class TwoNames(torch.nn.Module):
    """Functions that are one object under two names."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.slope = torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        x = x.reshape(-1, 1, 1, 8).expand(-1, 4, 4, 8)
        y = torch.conv2d(x, self.conv.weight, padding=1) + F.conv2d(x, self.conv.weight, padding=1) + self.conv(x)
        y = torch.prelu(y, self.slope)
        return torch.pixel_shuffle(y, 2) + torch.cosine_similarity(y, y).mean()


class Slots(torch.nn.Module):
    """Operators of tensors, and the methods behind them."""

    def forward(self, x):
        y = x.clone()
        y[0] = 1
        y[:, 1:] += x[:, 1:]
        y[x > 0] = 3
        z = -y + abs(y) + torch.Tensor.__neg__(x) + torch.Tensor.add(x, y) + (1 - y)
        return z + y.__radd__(3) + torch.Tensor.__rsub__(y, 1)


class Broken(torch.nn.Module):
    def forward(self, x):
        y = F.relu(x)
        torch._dynamo.graph_break()
        return F.gelu(y) + F.softmax(x, 1)


custom = types.ModuleType("custom")
exec("def scaled(x, by=2):\n    return x.relu() * by\n", custom.__dict__)


class Custom(torch.nn.Module):
    """Calls what is registered as an API of its own."""

    def forward(self, x):
        return custom.scaled(x) + 1


MODELS = {
    "sequential": lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()),
    "functions": Functions,
    "two names": TwoNames,
    "slots": Slots,
    "broken": Broken,
    "custom": Custom,
    "dynamic": lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Softmax(-1)),
    "trained": Functions,
}


class Run:
    """One compiled model, and its results."""

    def __init__(self, name):
        torch.manual_seed(len(name))
        self.name, self.model, self.digest = name, MODELS[name](), hashlib.sha256()
        self.counts = collections.Counter()
        self.compiled = torch.compile(self.model, fullgraph=name != "broken", backend=self._backend)
        self.optimize = None
        if name == "trained":
            self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=False)
            self.optimize = torch.compile(self.optimizer.step, backend=self._backend)

    def _backend(self, module, inputs):
        self.counts["graphs"] += 1
        return lookup_backend("aot_eager" if self.name == "trained" else "eager")(module, inputs)

    def __call__(self, cycle):
        frames = torch._dynamo.utils.counters["frames"]
        before = frames["total"]
        x = torch.linspace(-1, 1, 32 + (8 * (cycle % 3) if self.name == "dynamic" else 0)).reshape(-1, 8)
        y = self.compiled(x)
        if self.optimize is not None:
            y.square().mean().backward()
            self.optimize()
            self.optimizer.zero_grad()
        self.digest.update(y.detach().numpy().tobytes())
        self.counts["frames"] += frames["total"] - before

    def outcome(self):
        return {**self.counts, "digest": self.digest.hexdigest()}


def stopped_while_compiling(debugger):
    """stop() by one thread while another compiles: gives wrappers that stayed, if any."""
    before = {"F.relu.__code__": F.relu.__code__, "torch.conv2d": torch.conv2d}
    compiling, stopped = threading.Event(), threading.Event()

    def backend(module, inputs):
        compiling.set()
        assert stopped.wait(60)
        return module

    debugger.start(model=torch.nn.ReLU())
    thread = threading.Thread(target=torch.compile(lambda x: F.relu(x), backend=backend), args=(torch.ones(2),))
    thread.start()
    assert compiling.wait(60)
    debugger.stop()
    stopped.set()
    thread.join()
    debugger.step()
    now = {"F.relu.__code__": F.relu.__code__, "torch.conv2d": torch.conv2d}
    return [name for name, was in before.items() if now[name] is not was]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--out", required=True)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sys.modules["custom"] = custom
    warmed = {name: Run(name) for name in MODELS if name != "custom"}
    for cycle in range(4):
        for run in warmed.values():
            run(cycle)
    debugger = None
    if options.config:
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=options.config)
        debugger.register_custom_api(custom, "scaled")
    fresh = {}
    eager = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    models = [eager, *(run.model for run in warmed.values())]
    for cycle in range(options.cycles):
        if debugger is not None and (cycle == 0 or not options.once):
            debugger.start(model=models)
        if cycle == 0:
            fresh |= {name: Run(name) for name in list(MODELS)[::2]}
        eager(torch.ones(2, 8))
        for run in (*warmed.values(), *fresh.values()):
            run(cycle)
        if debugger is not None and not options.once:
            debugger.stop()
        if cycle == 3:
            fresh |= {name: Run(name) for name in list(MODELS)[1::2]}
        if cycle % 5 == 3:
            for run in (*warmed.values(), *fresh.values()):
                run(cycle)
        if debugger is not None:
            debugger.step()
    found = {"warmed": {name: run.outcome() for name, run in warmed.items()}}
    found["fresh"] = {name: run.outcome() for name, run in fresh.items()}
    if debugger is not None:
        debugger.stop()
        found["left in"] = stopped_while_compiling(debugger)
    pathlib.Path(options.out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

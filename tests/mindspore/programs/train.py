"""Trains one of a few small nets for two steps, captured by whichever tool's `msprobe` is installed.

    python train.py NET OUT LEVEL TASK [SUMMARY_MODE]     NET: lenet, transformer, rnn, recompute, jit, data
    python train.py NET -                                  without a debugger

Prints a line for each step: digests of the loss and of each gradient, by name.

Steps are few: from its sixth launch on a CPU kernel may add up in another order, while MindSpore tries what is fastest.
The loss of CrossEntropyLoss then has other bits, with a debugger and without.
"""

import hashlib
import json
import os
import pathlib
import sys

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Parameter, Tensor, mint, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.flat = nn.Flatten()
        self.fc1 = nn.Dense(6 * 12 * 12, 10)
        self.mul = ops.Mul()

    def construct(self, x):
        x = self.flat(self.pool(self.relu(self.conv1(x))))
        x = self.mul(ops.relu(self.fc1(x)), 2.0)
        return mint.nn.functional.relu(mint.abs(x + 1.0))


class Attention(nn.Cell):
    """Every input of its matmuls is used several times."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (mint.nn.Linear(width, width) for _ in range(3))
        self.scale = Parameter(Tensor(np.full((1,), width**-0.5, np.float32)), name="scale")

    def construct(self, x):
        query, key, value = self.query(x), self.key(x), self.value(x)
        weights = mint.nn.functional.softmax(
            mint.mul(mint.matmul(query, mint.transpose(key, -1, -2)), self.scale), dim=-1
        )
        return mint.matmul(weights, value)


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.norm = nn.LayerNorm((width,))
        self.up, self.down = mint.nn.Linear(width, 2 * width), mint.nn.Linear(2 * width, width)

    def construct(self, x, mask=None):
        x = x + self.attention(self.norm(x))
        half = ops.cast(x, ms.float16).astype(ms.float32)
        x = mint.add(x, self.down(mint.tanh(self.up(half))))
        return x if mask is None else x * mask


class Transformer(nn.Cell):
    def __init__(self, recompute=False):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.CellList([Block(8), Block(8)])
        self.head = mint.nn.Linear(8, 10)
        if recompute:
            self.blocks[1].recompute()

    def construct(self, tokens):
        x = self.embedding(tokens)
        mask = ops.ones((tokens.shape[0], tokens.shape[1], 1), ms.float32)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.head(mint.mean(x, 1))


class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(4, 6)
        self.head = nn.Dense(6, 10)

    def construct(self, x):
        state = ops.zeros((x.shape[0], 6), ms.float32)
        for i in range(x.shape[1]):
            state = self.cell(x[:, i], state)
        return self.head(state)


class Compiled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 10)

    @ms.jit
    def construct(self, x):
        return ops.relu(self.dense(x))


class HalfCompiled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 4)
        self.inner = Compiled()

    def construct(self, x):
        return self.inner(ops.tanh(self.first(x)))


class Pairs(nn.Cell):
    """Values of every kind."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 10)

    def construct(self, x):
        a, b = mint.split(x, 2, dim=0)
        high, where = mint.max(x, 1)
        wide = ops.cast(where, ms.int32) + 1
        small = ops.cast(x, ms.float64).astype(ms.float32)
        flag = mint.greater(x, 0.0)
        chosen = mint.where(flag, small, x)
        total = mint.sum(mint.cat([a, b], dim=0), dim=1, dtype=ms.float32)
        y = self.dense(chosen) * ops.expand_dims(high + total, 1)
        return y + ops.expand_dims(ops.cast(wide, ms.float32), 1)


class WithLoss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.loss = nn.CrossEntropyLoss()

    def construct(self, x, y):
        return self.loss(self.net(x), y)


def data(name):
    rng = np.random.RandomState(0)
    labels = Tensor(rng.randint(0, 10, 4).astype(np.int32))
    if name == "lenet":
        return Tensor(rng.randn(4, 1, 28, 28).astype(np.float32)), labels
    if name in ("transformer", "recompute"):
        return Tensor(rng.randint(0, 11, (4, 5)).astype(np.int32)), labels
    if name == "rnn":
        return Tensor(rng.randn(4, 3, 4).astype(np.float32)), labels
    return Tensor(rng.randn(4, 4).astype(np.float32)), labels


NETS = {
    "lenet": LeNet,
    "transformer": Transformer,
    "recompute": lambda: Transformer(recompute=True),
    "rnn": Recurrent,
    "jit": HalfCompiled,
    "data": Pairs,
}


def leave_out_graphs():
    """mindstudio-probe puts operators into compiled cells that MindSpore does not have on a CPU."""
    from msprobe.mindspore.dump.dump_processor.graph_mode_cell_dump import GraphModeCellDump

    GraphModeCellDump.handle = lambda self: None
    GraphModeCellDump.step = staticmethod(lambda *arguments: None)


def main():
    name, out, level, task, summary, *_ = [*sys.argv[1:], "", "", ""]
    debugger = None
    if os.environ.get("MSPROBE_SHIM"):  # mindstudio-probe calls a kernel that MindSpore does not have on a CPU
        mint.norm = lambda x: ops.norm(x)
        if name == "jit":
            leave_out_graphs()
    if out != "-":
        from msprobe.mindspore import PrecisionDebugger

        section = {"summary_mode": summary} if summary else {}
        config = {"task": task, "level": level, "dump_path": out, "rank": [], "step": [], task: section}
        path = pathlib.Path(out, "config.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config))
        debugger = PrecisionDebugger(config_path=str(path))
    ms.set_seed(1)
    np.random.seed(1)
    net = WithLoss(NETS[name]())
    optimizer = nn.SGD(net.trainable_params(), 0.01)
    step = ms.value_and_grad(net, None, optimizer.parameters)
    x, y = data(name)
    for _ in range(2):
        if debugger is not None:
            debugger.start(net)
        loss, gradients = step(x, y)
        if debugger is not None:
            debugger.stop()
        optimizer(gradients)
        if debugger is not None:
            debugger.step()
        tensors = {"loss": loss, **dict(zip((each.name for each in optimizer.parameters), gradients, strict=True))}
        digests = {name: hashlib.sha256(each.asnumpy().tobytes()).hexdigest() for name, each in tensors.items()}
        tell("digests", json.dumps(digests))


main()

"""The net of twice_torch.py in MindSpore with its weights: python twice_mindspore.py OUT WEIGHTS CELL.

Two steps are captured. In the second one weight of CELL is wrong.
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn
from mindspore.mint.nn import functional
from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
OUT, WEIGHTS, CELL = sys.argv[1:]
TORCHS = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}


class Attention(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (mint.nn.Linear(width, width) for _ in range(3))

    def construct(self, x):
        key = mint.transpose(self.key(x), -1, -2)
        weights = functional.softmax(mint.matmul(self.query(x), key) * 0.5, dim=-1)
        return mint.matmul(weights, self.value(x))


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm((width,), epsilon=1e-5)
        self.attention = Attention(width)
        self.up, self.down = nn.Dense(width, 2 * width), nn.Dense(2 * width, width)

    def construct(self, x):
        x = mint.add(x, self.attention(self.norm(x)))
        return mint.add(x, self.down(mint.tanh(self.up(x))))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="valid", has_bias=True)
        self.bn, self.act = nn.BatchNorm2d(4, use_batch_statistics=True), nn.ReLU()
        self.pool, self.flat = nn.MaxPool2d(2, 2), nn.Flatten()
        self.proj = nn.Dense(36, 8)
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.CellList([Block(8), Block(8)])
        self.head = nn.Dense(8, 10)

    def construct(self, image, tokens):
        x = self.proj(self.flat(self.pool(self.act(self.bn(self.conv(image))))))
        x = mint.add(self.embedding(tokens), mint.unsqueeze(x, 1))
        for block in self.blocks:
            x = block(x)
        return self.head(mint.sum(x, 1))


net, loss_of = Net(), nn.CrossEntropyLoss()
given = dict(np.load(WEIGHTS))
for parameter in net.trainable_params():
    path, _, name = parameter.name.rpartition(".")
    parameter.set_data(Tensor(given.pop(f"{path}.{TORCHS.get(name, name)}")))
assert not given, given
draw = np.random.RandomState(0)
image = Tensor(draw.randn(3, 1, 8, 8).astype(np.float32))
tokens, labels = (Tensor(draw.randint(0, most, size).astype(np.int32)) for most, size in ((11, (3, 5)), (10, 3)))
step = ms.value_and_grad(lambda: loss_of(net(image, tokens), labels), None, net.trainable_params())
debugger = PrecisionDebugger(dump_path=OUT, level="mix", task="statistics")
for _ in range(2):
    debugger.start(net)
    step()
    debugger.stop()
    debugger.step()
    weight = dict(net.cells_and_names())[CELL].weight
    changed = weight.asnumpy().copy()
    changed.flat[7] += 4
    weight.set_data(Tensor(changed))

"""Trains LeNet for two steps, captured into OUT: python lenet_mindspore.py OUT [CELL_WITH_A_FAULT]"""

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from msprobe.mindspore import PrecisionDebugger, seed_all

ms.set_context(mode=ms.PYNATIVE_MODE)
seed_all(1234)


class LeNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.pool = nn.MaxPool2d(2, 2)
        self.flat = nn.Flatten()
        self.fc1 = nn.Dense(16 * 4 * 4, 84)
        self.fc2 = nn.Dense(84, 10)

    def construct(self, x: Tensor) -> Tensor:
        x = self.pool(ops.relu(self.conv1(x)))
        x = self.pool(ops.relu(self.conv2(x)))
        return self.fc2(ops.relu(self.fc1(self.flat(x))))


output, fault = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
net = LeNet()
if fault:
    weight = getattr(net, fault).weight
    changed = weight.asnumpy().copy()
    changed.flat[7] *= 64
    weight.set_data(Tensor(changed))

loss_of = nn.CrossEntropyLoss()
optimizer = nn.SGD(net.trainable_params(), 0.01)
step = ms.value_and_grad(lambda x, y: loss_of(net(x), y), None, optimizer.parameters)
rng = np.random.RandomState(0)
x, y = Tensor(rng.randn(8, 1, 28, 28).astype(np.float32)), Tensor(rng.randint(0, 10, 8).astype(np.int32))

debugger = PrecisionDebugger(dump_path=output, level="mix", task="statistics")
for _ in range(2):
    debugger.start(net)
    loss, gradients = step(x, y)
    debugger.stop()
    optimizer(gradients)
    debugger.step()
    print(f"  loss {float(loss.asnumpy()):.4f}", flush=True)

"""A training that msprobe.watch makes series of: python watched.py CONFIG.

Prints `same BOOL`, whether losses, gradients and parameters have the bits that they have unwatched; and `norms`, of
head.weight: by series, what the program has of it step by step. head.bias is frozen in the first step.
"""

import json
import sys

import mindspore as ms
import msprobe
import numpy as np
from lines import tell
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Dense(6, 8), nn.LayerNorm((8,)), nn.Dense(8, 3)

    def construct(self, x):
        return ops.relu(self.head(self.norm(self.first(x)))).square().sum()


def norm(tensor):
    return float(np.linalg.norm(tensor.asnumpy().astype(np.float64)))


def train(begin):
    """Bits of what each step computes, and the norms."""
    ms.set_seed(1)
    np.random.seed(1)
    net = Net().set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    net.head.bias.requires_grad = False
    step = ms.value_and_grad(net, None, optimizer.parameters)
    begin(net, optimizer)
    data, bits, norms = np.random.RandomState(3), [], {}
    weight = net.head.weight
    place = next(index for index, each in enumerate(optimizer.parameters) if each is weight)
    for number in range(2):
        net.head.bias.requires_grad = number == 1
        loss, gradients = step(Tensor(data.randn(4, 6).astype(np.float32)))
        norms.setdefault("parameters_grad.reduced", []).append(norm(gradients[place]))
        optimizer(gradients)
        norms.setdefault("parameter", []).append(norm(weight))
        norms.setdefault("moment1", []).append(norm(optimizer.moment1[place]))
        bits += [each.asnumpy().tobytes() for each in (loss, *gradients, *net.get_parameters())]
    return bits, norms


def main(config):
    plain, _ = train(lambda _net, _optimizer: None)
    watched, norms = train(lambda net, optimizer: msprobe.watch(net, optimizer, config_path=config))
    tell("same", str(watched == plain))
    tell("norms", json.dumps(norms))


main(*sys.argv[1:])

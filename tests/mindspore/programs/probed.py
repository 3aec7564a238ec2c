"""Task grad_probe over a small training: python probed.py CONFIG SEEN [--noise SHARE] [--by-cell].

Prints `same BOOL`, whether losses, gradients and parameters have the bits that they have without a debugger. SEEN gets
the gradients, by step and parameter, as an .npz file. --noise: share by which gradients are disturbed from step 1 on.
--by-cell: monitor() is given the cell, not the optimizer.
"""

import argparse

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Tensor, nn, ops
from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
STEPS = 2


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 10)
        self.norm, self.head = nn.LayerNorm((10,)), nn.Dense(10, 3)
        self.unused = nn.Dense(2, 2)

    def construct(self, tokens):
        return ops.relu(self.head(self.norm(self.embedding(tokens)))).square().sum()


def train(noise, begin):
    """(name, bytes) of what each step computes; and its gradients. begin(net, optimizer): before the first step."""
    ms.set_seed(1)
    np.random.seed(1)
    net = Net().set_train()
    used = [each for each in net.trainable_params() if not each.name.startswith("unused")]
    optimizer = nn.Adam(used, 1e-2)
    step = ms.value_and_grad(net, None, optimizer.parameters)
    begin(net, optimizer)
    data, disturbed = np.random.RandomState(3), np.random.RandomState(5)
    bits, seen = [], {}
    for number in range(STEPS):
        loss, gradients = step(Tensor(data.randint(0, 12, (4, 9)), ms.int32))
        if noise and number:
            gradients = tuple(
                each + Tensor(noise * disturbed.randn(*each.shape) * np.abs(each.asnumpy()).mean(), ms.float32)
                for each in gradients
            )
        for parameter, gradient in zip(optimizer.parameters, gradients, strict=True):
            seen[f"{number}/{parameter.name}"] = gradient.asnumpy().copy()
        optimizer(gradients)
        bits += [each.asnumpy().tobytes() for each in (loss, *gradients, *net.get_parameters())]
    return bits, seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("seen")
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--by-cell", action="store_true")
    options = parser.parse_args()
    plain, _ = train(options.noise, lambda _net, _optimizer: None)
    debugger = PrecisionDebugger(config_path=options.config)
    call = nn.Optimizer.__call__
    bits, seen = train(options.noise, lambda net, optimizer: debugger.monitor(net if options.by_cell else optimizer))
    tell("same", str(bits == plain and nn.Optimizer.__call__ is not call))
    np.savez(options.seen, **seen)


main()

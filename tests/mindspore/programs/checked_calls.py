"""python checked_calls.py DUMP_PATH TASK: calls of mindspore.mint and Tensor, both ways, at level L1."""

import contextlib
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from msprobe.mindspore import PrecisionDebugger

dump_path, task = sys.argv[1:]
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
ms.set_seed(3)
rng = np.random.RandomState(3)


def drawn(*shape):
    return Tensor(rng.randn(*shape).astype(np.float32))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = ms.Parameter(drawn(8, 6), name="w")
        self.b = ms.Parameter(drawn(8), name="b")

    def construct(self, x):
        y = mint.nn.functional.relu(mint.nn.functional.linear(x, self.w, self.b))
        z = mint.matmul(y, mint.transpose(y, 0, 1))
        s = mint.nn.functional.softmax(z, dim=-1)
        a = mint.add(s, ops.tanh(z))
        h = mint.add(a.to(ms.float16), 1).to(ms.float32)
        c = mint.cat((a, a), dim=0)
        m = mint.exp(s.reshape(2, 8))
        mint.eq(a, a)
        with contextlib.suppress(TypeError):  # a CPU has no kernel for it: the call is recorded, and raises
            a.to(ms.bfloat16).isnan()
        return mint.mean(mint.sub(mint.mul(m, m), m)) + mint.sum(c) + mint.mean(h)


net = Net()
step = ms.value_and_grad(net, None, net.trainable_params())
debugger = PrecisionDebugger(dump_path=dump_path, task=task, level="L1")
debugger.start(net)
step(Tensor(0.1 * rng.randn(4, 6).astype(np.float32)))
debugger.stop()
debugger.step()
debugger.wait()

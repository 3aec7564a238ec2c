"""python live_check.py HOLD CONFIG [wrong]: trains a small net for six steps; prints a hash of its weights.

After the third step it waits until the file HOLD is gone. CONFIG: a config.json to capture with; "off": none.
wrong: gelu has another constant than it should, in this process alone.
"""

import hashlib
import pathlib
import sys
import time

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Tensor, mint, nn

hold, config, *wrong = sys.argv[1:]
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
ms.set_seed(3)
rng = np.random.RandomState(3)
if wrong:

    def wrong_gelu(input, approximate="none"):
        return 0.5 * input * (1 + mint.tanh(0.7978845608 * (input + 0.0447 * input * input * input)))

    mint.nn.functional.gelu = wrong_gelu


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = ms.Parameter(Tensor((0.2 * rng.randn(64, 32)).astype(np.float32)), name="up")
        self.down = ms.Parameter(Tensor((0.2 * rng.randn(8, 64)).astype(np.float32)), name="down")

    def construct(self, x):
        hidden = mint.nn.functional.gelu(mint.nn.functional.linear(x, self.up), approximate="tanh")
        return mint.mean(mint.square(mint.nn.functional.linear(hidden, self.down)))


net = Net()
debugger = None
if config != "off":
    from msprobe.mindspore import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=config)
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.1)
train = ms.value_and_grad(net, None, net.trainable_params())
for step in range(6):
    if debugger is not None:
        debugger.start(net)
    _, gradients = train(Tensor(rng.randn(16, 32).astype(np.float32)))
    if debugger is not None:
        debugger.stop()
        debugger.step()
    optimizer(gradients)
    tell("step", step)
    while step == 2 and pathlib.Path(hold).exists():
        time.sleep(0.02)
digest = hashlib.sha256(b"".join(p.asnumpy().tobytes() for p in net.get_parameters()))
tell("weights", digest.hexdigest())

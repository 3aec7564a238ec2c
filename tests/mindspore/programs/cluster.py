"""Two processes that MindSpore's own gRPC joins, a step of each captured: python -m mindspore.parallel.cluster.run
... cluster.py OUT. Writes OUT/rank{R}.json: how many ranks there are, whether the bits are those without capture, and
which gRPC is loaded.
"""

import hashlib
import json
import pathlib
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, mint, nn, ops
from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 2)
        self.reduce = ops.AllReduce()

    def construct(self, x):
        return mint.sum(self.reduce(mint.tanh(self.first(x))))


def main(out):
    communication.init()
    rank, ranks = communication.get_rank(), communication.get_group_size()
    ms.set_seed(1)
    net = Net()
    step = ms.value_and_grad(net, None, net.trainable_params())
    x = Tensor(np.full((3, 4), rank + 1, np.float32))

    def digest():
        loss, gradients = step(x)
        return hashlib.sha256(b"".join(each.asnumpy().tobytes() for each in (loss, *gradients))).hexdigest()

    before = digest()
    config = pathlib.Path(out, f"config{rank}.json")
    config.write_text(json.dumps({"task": "statistics", "level": "mix", "dump_path": f"{out}/dump"}))
    debugger = PrecisionDebugger(config_path=str(config))
    for _ in range(2):
        debugger.start(net)
        now = digest()
        debugger.stop()
        debugger.step()
    debugger.wait(60)
    maps = pathlib.Path("/proc/self/maps").read_text().split()
    grpc = sorted({pathlib.Path(word).name for word in maps if "grpc" in word})
    pathlib.Path(out, f"rank{rank}.json").write_text(json.dumps([ranks, now == before, grpc]))


main(sys.argv[1])

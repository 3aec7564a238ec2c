"""Task free_benchmark over planted calls: python perturbed.py OUT MODE [STAGE [HANDLER]].

Prints `same BOOL`, whether the calls and the training gave the bits that they gave without a debugger; with handler
fix `got [...]`, numbers of calls in 16 bits. It runs with mindstudio-probe's msprobe too.
"""

import json
import os
import pathlib
import sys

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Tensor, mint, nn, ops

if os.environ.get("MSPROBE_SHIM"):  # mindstudio-probe's statistics, which free_benchmark does not take, need it
    mint.norm = lambda x: ops.norm(x)

from msprobe.mindspore import PrecisionDebugger

LISTED = ["log", "exp", "sub", "mul", "tanh", "relu", "softmax", "matmul", "add", "var"]  # for stage backward

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")


def values(first, last):
    return Tensor(np.linspace(first, last, 64).astype(np.float32))


def calls():
    """Those that make much of a small change; and those that do not."""
    near, plain = values(1.0002, 1.0004), values(0.5, 2)
    yield mint.log(near)
    yield ops.log(near)
    yield mint.nn.functional.softmax(values(20000, 20001), dim=-1)
    yield ops.sub(near, values(1.0003, 1.0005))
    yield mint.exp(plain)
    yield mint.tanh(plain)
    yield mint.add(plain, plain)
    yield mint.matmul(plain.reshape(8, 8), plain.reshape(8, 8))
    yield ops.relu(plain)
    yield mint.nn.functional.softmax(plain, dim=-1)


def losses():
    """Gradients of single calls, each with others coming in."""
    weights = values(1, 3)
    for function in (mint.log, mint.exp, mint.tanh):
        yield ms.grad(lambda x, f=function: mint.sum(mint.mul(f(x), weights)))(values(0.5, 2))
    yield ms.grad(lambda x: mint.sum(ops.sub(x, x)))(values(0.5, 2))  # both inputs are one


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.drop = nn.Dense(8, 8), nn.Dense(8, 4), nn.Dropout(p=0.5)
        self.norm = nn.BatchNorm1d(8)

    def construct(self, x):
        return ops.softmax(self.second(self.drop(ops.relu(self.norm(self.first(x))))), -1).square().sum()


def training():
    """Losses and weights of two steps: with numbers that are drawn, and running means that each call moves."""
    ms.set_seed(1)
    net = Net().set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    step = ms.value_and_grad(net, None, net.trainable_params())
    for batch in range(2):
        loss, gradients = step(Tensor(np.linspace(-1, 1 + batch, 32).astype(np.float32).reshape(4, 8)))
        optimizer(gradients)
        yield loss
    yield from net.get_parameters()


def everything():
    return [value.asnumpy().tobytes() for each in (calls, losses, training) for value in each()]


def halves():
    """What the program gets where 16 bits are not enough: squares that overflow on the way."""
    half = Tensor(np.linspace(300, 900, 64).astype(np.float16))
    rows = half.reshape(8, 8)
    return [float(each) for each in (ops.norm(half), ops.cosine_similarity(rows, rows)[0], ops.tanh(half / 1000)[0])]


def main(out, mode, stage="forward", handler="check"):
    path = pathlib.Path(out, "config.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    section = {"list": LISTED if stage == "backward" else [], "pert_mode": mode, "handler_type": handler}
    section |= {"fuzz_device": "npu", "fuzz_stage": stage, "fuzz_level": "L1", "if_preheat": False}
    general = {"task": "free_benchmark", "dump_path": out, "rank": [], "step": [], "level": "L1"}
    path.write_text(json.dumps({**general, "free_benchmark": section}))
    run = everything if handler == "check" else halves
    before = run()
    debugger = PrecisionDebugger(config_path=str(path))
    debugger.start()
    now = run()
    debugger.stop()
    debugger.step()
    tell("same", now == before)
    if handler == "fix":
        tell("got", json.dumps(now))


main(*sys.argv[1:])

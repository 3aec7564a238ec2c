"""Level L0 in GRAPH_MODE, of which Ascend alone has the operators: python graph_cells.py MODE OUT.

MODE is eager: the rewritten cells run in PyNative mode, over stand-ins that write the same files; or graph: MindSpore
compiles them, which fails where it looks for kernels.
"""

import hashlib
import importlib
import json
import os
import pathlib
import sys

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Tensor, nn, ops
from msprobe.mindspore import MsprobeError, PrecisionDebugger
from msprobe.mindspore._cell_dump import CellDump
from msprobe.mindspore._kernel_dump import KernelConfigFile

ms.set_device("CPU")
STEPS = 2


class Split(nn.Cell):
    """Two results, one of them no tensor, and an argument by keyword."""

    def construct(self, x, scale, offset=None):
        y = x * scale
        return (y if offset is None else y + offset), scale


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.blocks = nn.CellList([nn.Dense(4, 4), nn.Dense(4, 4)])
        self.split = Split()

    def construct(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = ops.tanh(block(x))
        x = self.blocks[0](x)  # once more
        x, _ = self.split(x, 2.0, offset=x)
        return x.sum()


class Model(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def construct(self, tokens):
        return self.net(tokens)


class Written:
    """What the stand-ins wrote, in MindSpore's words."""

    step = files = marks = 0

    def write(self, path, tensor):
        if path == "<tensordump-update-step>":
            self.marks += 1
            return
        array = tensor.asnumpy()
        filled = path.replace("{step}", f"step{self.step}").replace("{rank}", "rank0")
        file = pathlib.Path(f"{filled}_{array.dtype}_{self.files}.npy")
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, array)
        self.files += 1


def stand_in(written):
    class TensorDump:
        def add_prim_attr(self, name, value):
            pass

        def __call__(self, path, tensor):
            written.write(path, tensor)
            return tensor

    class DumpGradient:
        def __call__(self, path, tensor, side):
            assert side == "in"

            def keep(gradients):
                written.write(path, gradients[0] if isinstance(gradients, tuple) else gradients)

            return ops.HookBackward(keep)(tensor)

    run = ops.primitive._run_op

    def run_op(operator, name, arguments):
        if not isinstance(operator, TensorDump):
            return run(operator, name, arguments)
        operator(*arguments)
        written.step += 1

    ops.TensorDump, ops.DumpGradient, ops.primitive._run_op = TensorDump, DumpGradient, run_op


def cell_dump(out, **fields):
    path = pathlib.Path(out, "config.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"task": "tensor", "level": "L0", "dump_path": str(out), **fields}))
    file = KernelConfigFile(path, None, None, None, None)
    return CellDump(file.asked(), file.parse())


def train(start=lambda model, step: None, end=lambda: None):
    """Digests of the loss and every gradient, of each step."""
    ms.set_seed(1)
    model = Model()
    step = ms.value_and_grad(model, None, model.trainable_params())
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    digests = []
    for number in range(STEPS):
        start(model, number)
        loss, gradients = step(Tensor([[1, 2, 3], [4, 5, 6]], ms.int32))
        optimizer(gradients)
        end()
        digests.append([hashlib.sha256(each.asnumpy().tobytes()).hexdigest() for each in (loss, *gradients)])
    return digests


def refused(out, **fields):
    try:
        cell_dump(out, **fields)
    except MsprobeError as error:
        return str(error)


def eager(out):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    plain = train()
    debugger = PrecisionDebugger(task="tensor", level="L0", dump_path=str(out / "eager"))

    def stop():
        debugger.stop()
        debugger.step()

    captured = train(lambda model, step: debugger.start(model), stop)
    written = Written()
    stand_in(written)
    dump = cell_dump(out / "graph")
    said = []
    digests = train(lambda model, step: said.append(dump.start([model], step, 0)), dump.end_step)
    forward = cell_dump(out / "forward", tensor={"data_mode": ["forward"]})
    train(lambda model, step: forward.start([model], step, 0))
    asked = {
        "task": {"task": "structure"},
        "rank": {"rank": [1]},
        "list": {"tensor": {"list": ["Dense"]}},
        "data_mode": {"tensor": {"data_mode": ["input"]}},
        "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    }
    refusals = {name: refused(out / "refused", **fields) for name, fields in asked.items()}
    tell("said", json.dumps([digests == plain == captured, said, written.marks, refusals]))


def graph(out):
    ms.set_context(mode=ms.GRAPH_MODE)
    native = importlib.import_module("mindspore._c_expression")
    native._set_init_iter = lambda step: None  # which refuses statistics on a CPU
    dump = cell_dump(out, task="statistics", step=[1, 3])
    del os.environ["MINDSPORE_DUMP_CONFIG"]  # for the same reason
    try:
        train(lambda model, step: dump.start([model], step, 0))
        error = "none"
    except (RuntimeError, TypeError) as raised:
        error = str(raised)
    settings = json.loads((out / "0kernel_kbyk_dump.json").read_text())
    tell("said", json.dumps([error, settings]))


{"eager": eager, "graph": graph}[sys.argv[1]](pathlib.Path(sys.argv[2]))

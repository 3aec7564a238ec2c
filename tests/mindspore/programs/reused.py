"""Parameters that are read once: python reused.py OUT.

Prints `said JSON`: by what writes a parameter, its checksum in each step; how many numbers were remembered; and
where MindSpore's own count of writes has not moved.
"""

import json
import pathlib
import sys
import zlib

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Parameter, Tensor, mint, nn, ops
from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
SIZE = 1 << 16  # elements, of which most hazards write the last alone
STEPS = 4


class Weights(nn.Cell):
    def __init__(self, weight):
        super().__init__()
        self.weight = Parameter(weight, name="weight")

    def construct(self, x):
        return mint.mul(x, self.weight)


class Model(nn.Cell):
    def __init__(self, cells):
        super().__init__()
        self.all = nn.CellList(cells)

    def construct(self, x):
        for cell in self.all:
            cell(x)


def changed(weight):
    data = weight.asnumpy().copy()
    data[-1] += 1
    return Tensor(data)


def by_optimizer(weight):
    gradient = np.zeros(SIZE, np.float32)
    gradient[-1] = 1
    nn.SGD([weight], 0.5)((Tensor(gradient),))


def by_numpy(weight):
    weight.asnumpy()[-1] += 1


HAZARDS = {
    "nothing": lambda weight: None,
    "optimizer": by_optimizer,
    "assign": lambda weight: ops.assign(weight, changed(weight)),
    "set_data": lambda weight: weight.set_data(changed(weight)),
    "asnumpy": by_numpy,
    "in place": lambda weight: weight.copy_(changed(weight)),
    "setitem": lambda weight: weight.__setitem__(SIZE - 1, weight[-1] + 1),
    "assign_value": lambda weight: weight.assign_value(changed(weight)),
}


def main(out):
    shared = np.ones(SIZE, np.float32)
    mapped = np.memmap(out / "mapped", np.float32, "w+", shape=SIZE)
    names = [*HAZARDS, "from_numpy", "memmap"]
    model = Model([Weights(Tensor(np.full(SIZE, number, np.float32))) for number in range(len(names))])
    for cell, array in zip(model.all[-2:], (shared, mapped), strict=True):
        cell.weight.set_data(Tensor.from_numpy(array))  # the parameter lies in the array from now on
    config = {
        "task": "statistics",
        "level": "L0",
        "dump_path": str(out / "dump"),
        "statistics": {"summary_mode": "md5"},
    }
    path = out / "config.json"
    path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(path)
    true = {name: [] for name in names}
    x = Tensor(np.ones(1, np.float32))
    for _ in range(STEPS):
        for name, cell in zip(names, model.all, strict=True):
            true[name].append(f"{zlib.crc32(cell.weight.asnumpy().tobytes()):08x}")
        debugger.start(model)
        model(x)
        debugger.stop()
        debugger.step()
        for name, cell in zip(names, model.all, strict=True):
            HAZARDS.get(name, lambda weight: None)(cell.weight)
        shared[-1] += 1
        mapped[-1] += 1
    unmoved = [name for name, cell in zip(names, model.all, strict=True) if not cell.weight._version]
    tell("said", json.dumps([true, debugger._agent.counters()["statistics_recalled"], unmoved]))


main(pathlib.Path(sys.argv[1]))

"""torch and MindSpore in one process, a step of each captured: python both.py OUT FIRST, where FIRST is the one whose
msprobe is imported first.

Prints `said JSON`: whether the bits of both are those without capture, and the refusal of a shared dump_path.
"""

import importlib
import json
import pathlib
import sys

OUT, FIRST = pathlib.Path(sys.argv[1]), sys.argv[2]
NAMES = ["pytorch", "mindspore"] if FIRST == "torch" else ["mindspore", "pytorch"]
TOOLS = {name: importlib.import_module(f"msprobe.{name}") for name in NAMES}

import mindspore as ms  # noqa: E402  (the other may be first)
import numpy as np  # noqa: E402
import torch  # noqa: E402
from lines import tell  # noqa: E402
from mindspore import Tensor, mint, nn  # noqa: E402

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
GIVEN = np.linspace(-1, 1, 12).astype(np.float32).reshape(3, 4)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 2)

    def construct(self, x):
        return mint.sum(mint.tanh(self.first(x)))


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 2)

    def forward(self, x):
        return torch.tanh(self.first(x)).sum()


torch.manual_seed(0)
ms.set_seed(0)
MODULE, NET = Module(), Net()
GRADIENTS_OF = ms.value_and_grad(NET, None, NET.trainable_params())


def step():
    """The bits of both losses and gradients."""
    MODULE.zero_grad()
    loss = MODULE(torch.from_numpy(GIVEN))
    other, gradients = GRADIENTS_OF(Tensor(GIVEN))
    loss.backward()
    of_torch = [loss, *(each.grad for each in MODULE.parameters())]
    return [each.detach().numpy().tobytes() for each in of_torch] + [
        each.asnumpy().tobytes() for each in (other, *gradients)
    ]


def debugger_of(tool, name):
    path = OUT / f"{name}.json"
    fields = {"task": "statistics", "level": "mix", "run": "pair", "dump_path": str(OUT / name)}
    path.write_text(json.dumps(fields))
    return TOOLS[tool].PrecisionDebugger(config_path=str(path))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    before = step()
    of_torch = debugger_of("pytorch", "torch")
    try:
        debugger_of("mindspore", "torch")
        refusal = None
    except TOOLS["mindspore"].MsprobeError as error:
        refusal = str(error)
    of_mindspore = debugger_of("mindspore", "mindspore")
    of_torch.start(MODULE)
    of_mindspore.start(NET)
    now = step()
    for debugger in (of_mindspore, of_torch):
        debugger.stop()
        debugger.step()
    tell("said", json.dumps([now == before, step() == before, refusal]))


main()

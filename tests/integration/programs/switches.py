"""Small programs, one a switch of config.json or of the debugger's methods, for whichever `msprobe` is importable.

python switches.py NAME CONFIG [--change]      # --change: one operator of the net gives something else
"""

import json
import pathlib
import sys
import time

import torch
from say import say


class Net(torch.nn.Module):
    """Linear, relu, a sequence, and a scale that --change changes."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.rest = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.scale = 2.0 if "--change" in sys.argv else 1.0

    def forward(self, x):
        return torch.mul(self.rest(torch.relu(self.first(x))), self.scale)


def net():
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    return Net()


def rows(count, offset=0.0):
    return torch.arange(count * 4, dtype=torch.float32).reshape(count, 4) / 10 + offset


def debugger():
    from msprobe.pytorch import PrecisionDebugger

    return PrecisionDebugger(config_path=sys.argv[2])


def train():
    """Two steps of forward and backward."""
    model, tool = net(), debugger()
    for step in range(2):
        tool.start(model)
        say("OUTPUT", model(rows(2, step)).sum().item())
        model(rows(2, step)).sum().backward()
        tool.stop()
        tool.step()


def tokens():
    """Five forward passes of which 1 to 2 are asked for, with a call between passes; then a step without a range."""
    model, tool = net(), debugger()
    batches = [rows(2, index) for index in range(5)]
    tool.start(model, token_range=[1, 2])
    for batch in batches:
        model(batch)
        torch.neg(batch)
    tool.stop()
    tool.step()


def tokens_of_steps():
    """Two steps of three forward passes without a stop between them; passes 1 to 2 are asked for, once."""
    model, tool = net(), debugger()
    batches = [rows(2, index) for index in range(3)]
    tool.start(model, token_range=[1, 2])
    for _ in range(2):
        for batch in batches:
            model(batch)
        tool.step()
    tool.stop()


def requests():
    """Three steps of batches of requests a, b and c; b is missing in the second."""
    model, tool = net(), debugger()
    for scheduled in ({"a": 2, "b": 3, "c": 1}, {"a": 2, "c": 1}, {"b": 1, "a": 4}):
        tool.start(model, scheduled_tokens=scheduled)
        model(rows(sum(scheduled.values())))
        torch.neg(rows(7))  # no tensor of the batch
        tool.stop()
        tool.step()


def shifted():
    """One pass of other inputs, to see what load puts in their place."""
    model, tool = net(), debugger()
    x = rows(2, 5.0).requires_grad_()
    tool.start(model)
    out = model(x)
    out.sum().backward()
    tool.stop()
    tool.step()
    say("OUTPUT", out.sum().item(), "INPUT GRADIENT", x.grad is not None)


def infinite():
    """A net whose second operator gives Inf, and one NaN input."""
    tool = debugger()
    tool.start()
    big = torch.full((2,), 1e30)
    torch.add(big, 1.0)
    torch.mul(big, big)
    torch.isnan(torch.tensor([float("nan")]))
    tool.stop()
    tool.step()


def dtypes():
    """One call for each kind of number."""
    tool = debugger()
    tool.start()
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.uint8,
        torch.complex64,
    ):
        torch.neg(torch.arange(1, 6).to(dtype))
    tool.stop()
    tool.step()


def reload():
    """Ten steps; before step N the changes named in CONFIG.changes.json are written to CONFIG."""
    config = pathlib.Path(sys.argv[2])
    changes = json.loads(config.with_suffix(".changes.json").read_text())
    tool = debugger()
    for step in range(10):
        for text in changes.get(str(step), []):
            config.write_text(text)
            time.sleep(0.6)  # the file is looked at twice a second
        tool.start()
        torch.neg(torch.ones(step + 1))
        torch.abs(torch.ones(2))
        tool.stop()
        tool.step()


def module():
    """One module by a name of its own."""
    from msprobe.pytorch import module_dump, module_dump_end

    model, tool = net(), debugger()
    tool.start()
    model(rows(2))
    module_dump(model.rest, "mine")
    model(rows(2)).sum().backward()
    module_dump_end()
    model(rows(2))
    tool.stop()
    tool.step()


if __name__ == "__main__":
    programs = (train, tokens, tokens_of_steps, requests, shifted, infinite, dtypes, reload, module)
    {program.__name__: program for program in programs}[sys.argv[1]]()

"""Programs as somebody new to the tool writes them: newcomer.py --config FILE CASE."""

import argparse
import sys

import numpy
import torch
from say import say
from torch import nn


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(float(index)) * index


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.second(self.first(x).sin())


class WithArray(nn.Module):
    def forward(self, x, scale, words):
        del words
        return x * torch.from_numpy(scale)


class ArrayNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.scaled = WithArray()

    def forward(self, x):
        column = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)[:, 1:]
        return self.scaled(x, column, words=numpy.zeros((0, 2)))


def steps(debugger, model, run, count=2):
    for _ in range(count):
        debugger.start(model=model)
        run()
        debugger.stop()
        debugger.step()


def penalty(debugger):
    """Two backward passes over one forward: a gradient penalty, and then the loss."""
    model = Inner()
    x = torch.ones(2, 4, requires_grad=True)

    def run():
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (out.sum() + slope.pow(2).sum()).backward()

    steps(debugger, model, run)


def compiled(debugger):
    model = Inner()
    model.compile(backend="eager")
    steps(debugger, model, lambda: model(torch.ones(2, 4)))


def bare(debugger):
    model = nn.Linear(4, 4)
    steps(debugger, model, lambda: model(torch.ones(2, 4)))


def uncalled(debugger):
    steps(debugger, Inner(), lambda: Inner()(torch.ones(2, 4)))


def plain(debugger):
    model = Inner()
    steps(debugger, model, lambda: model(torch.ones(2, 4)).sum().backward())


def vmapped(debugger):
    steps(debugger, None, lambda: torch.func.vmap(torch.sin)(torch.ones(3, 4)))


def arrays(debugger):
    model = ArrayNet()
    steps(debugger, model, lambda: model(torch.ones(3, 3)), count=1)


def workers(debugger):
    debugger.start()
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context=context)
        say("LOADED", context, [value for batch in loader for value in batch.tolist()])
    torch.abs(torch.ones(2))
    debugger.stop()
    debugger.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    globals()[options.case](debugger)
    say("ENDED")


if __name__ in ("__main__", "__mp_main__"):
    from msprobe.pytorch import PrecisionDebugger

    # As in many programs, this line runs in a spawned worker too.
    debugger = PrecisionDebugger(config_path=sys.argv[sys.argv.index("--config") + 1])

if __name__ == "__main__":
    main()

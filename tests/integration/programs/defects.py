"""A small model in one step, as users of mindstudio-probe call it: defects.py --config FILE [--one-cpu]."""

import argparse
import os

import torch
from say import say
from torch import relu as bound_early


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x):
        return bound_early(self.second(torch.sigmoid(self.first(x))))


class Root(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.Linear(4, 4)
        self.block = Block()

    def forward(self, x):
        return torch.tanh(self.block(self.before(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--one-cpu", action="store_true")
    options = parser.parse_args()
    if options.one_cpu:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    torch.manual_seed(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=options.config)
    model = Root()
    debugger.start(model=model)
    model(torch.ones(2, 4)).sum().backward()
    debugger.stop()
    debugger.step()
    say("ENDED")


if __name__ == "__main__":
    main()

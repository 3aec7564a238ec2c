"""Trains a small net in which one layer makes NaN from step --nan-at on, or infinities from step --inf-at on.

    overflowing.py --config CONFIG --steps 20 --nan-at 8 --pace 0.2 --hold FILE --go FILE

They begin in layers.2, in a log or an exp; all other numbers are finite before. In the last step it waits for --hold
before the head, after it for --go, with its session open.
"""

import argparse
import pathlib
import sys
import time

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integration" / "programs"))
from say import say


def wait_for(file):
    while file is not None and not file.exists():
        time.sleep(0.05)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.planted = ""

    def forward(self, x):
        y = torch.relu(self.proj(x)) * self.scale
        if self.planted == "nan":
            y = torch.log(y - 1.0e3)  # of negative numbers
        elif self.planted == "inf":
            y = torch.exp(y + 1.0e3)
        return x + y


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(4))
        self.head = nn.Linear(width, 4)
        self.hold = None

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        wait_for(self.hold)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--nan-at", type=int, default=-1)
    parser.add_argument("--inf-at", type=int, default=-1)
    parser.add_argument("--log", action="store_true", help="the loss, as a scalar")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between steps")
    parser.add_argument("--hold", type=pathlib.Path)
    parser.add_argument("--go", type=pathlib.Path)
    options = parser.parse_args()

    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(7)
    debugger = PrecisionDebugger(config_path=options.config)
    net = Net()
    target = torch.arange(8) % 4
    for step in range(options.steps):
        for planted, first in (("nan", options.nan_at), ("inf", options.inf_at)):
            if 0 <= first <= step:
                net.layers[2].planted = planted
        if step == options.steps - 1:
            net.hold = options.hold
        debugger.start(model=net)
        loss = nn.functional.cross_entropy(net(torch.randn(8, 16)), target)
        loss.backward()
        if options.log:
            debugger.log({"loss": loss})
        debugger.stop()
        debugger.step()
        time.sleep(options.pace)
    say("steps done")
    wait_for(options.go)


if __name__ == "__main__":
    main()

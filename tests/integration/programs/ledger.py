"""Trains a small net whose parameters go on from step to step, and writes them after each step.

--ledger gets a line a step: a hash of all parameters and moments, and the loss. --place holds one number of 64 bits,
written by one store each time: the step times 16, plus the phase of it that has begun (PHASES). Without --config
nothing is captured and msprobe is not imported; the ledger must be the same. --serve: a process that forks another for
each request, a JSON object a line with these as keys, and answers with its process id.
"""

import argparse
import ctypes
import hashlib
import mmap
import pathlib
import time

import torch
import torch._dynamo  # the optimizer asks for it: once, before the forks
from forks import serve
from torch import nn

PHASES = ("start", "forward", "loss", "backward", "again", "update", "stop", "step", "between")


class Place:
    def __init__(self, path):
        path = pathlib.Path(path)
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._number = ctypes.c_uint64.from_buffer(self._map)

    def at(self, step, phase):
        self._number.value = step * 16 + PHASES.index(phase)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(24)
        self.linear = nn.Linear(24, 24)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(torch.nn.functional.gelu(self.linear(self.norm(x))))


def digest(net, optimizer):
    found = hashlib.sha256()
    for parameter in net.parameters():
        found.update(parameter.detach().numpy().tobytes())
        for value in optimizer.state[parameter].values():
            found.update(value.numpy().tobytes())
    return found.hexdigest()


def train(place, ledger, *, config=None, steps=10, pause=0.0):
    torch.manual_seed(0)
    place = Place(place)
    net = nn.Sequential(*(Block() for _ in range(3)))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    debugger = None
    if config is not None:
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=str(config))
    target = torch.linspace(-1, 1, 16 * 24).reshape(16, 24)
    with pathlib.Path(ledger).open("w") as lines:
        for step in range(steps):
            place.at(step, "start")
            if debugger:
                debugger.start(model=net)
            optimizer.zero_grad()
            place.at(step, "forward")
            out = net(torch.randn(16, 24))
            place.at(step, "loss")
            loss = torch.nn.functional.mse_loss(out, target)
            place.at(step, "backward")
            loss.backward(retain_graph=True)
            place.at(step, "again")
            loss.backward()
            place.at(step, "update")
            optimizer.step()
            place.at(step, "stop")
            if debugger:
                debugger.stop()
            place.at(step, "step")
            if debugger:
                debugger.step()
            place.at(step, "between")
            print(digest(net, optimizer), loss.item().hex(), file=lines, flush=True)
            time.sleep(pause)
    if debugger:
        debugger.wait()


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--place")
    parser.add_argument("--ledger")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve(train)
    else:
        train(options.place, options.ledger, config=options.config, steps=options.steps)


if __name__ == "__main__":
    main()

"""Trains a small net until it is killed; the file --oracle, unknown to msprobe, says which calls have returned.

The file holds one number of 64 bits, written by one store each time: the step times 1024, plus how many of the
beginnings and ends of that step's parts (oracle_layout.PARTS) have passed. --hang N: a call of step N never returns.
--steps N: ends after N steps. --serve: a process that forks another for each request, a JSON object a line, and answers
with its process id.
"""

import argparse
import ctypes
import mmap
import pathlib
import sys
import threading
import time

import torch
from forks import serve
from oracle_layout import LAYERS, PERIOD, SINES
from torch import nn


class Oracle:
    def __init__(self, path):
        path = pathlib.Path(path)
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._number = ctypes.c_uint64.from_buffer(self._map)

    def passed(self):
        self._number.value += 1

    def step_ended(self, step):
        self._number.value = (step + 1) * 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 24)

    def forward(self, x):
        return torch.nn.functional.relu(self.linear(x))


class Net(nn.Module):
    def __init__(self, oracle):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.oracle = oracle

    def forward(self, x, hang):
        for block in self.blocks:
            self.oracle.passed()
            x = block(x)
            self.oracle.passed()
        if hang:
            sys.modules[__name__].slow(x)
        for _ in range(SINES):
            self.oracle.passed()
            x = torch.sin(x)
            self.oracle.passed()
        return x


def slow(x):
    while True:
        time.sleep(60)


def take_all_memory():
    taken = []
    while True:
        taken.append(b"x" * (1 << 20))


def train(config, oracle, *, hang=None, steps=None, pause=0.0, greedy=None):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    oracle = Oracle(oracle)
    net = Net(oracle)
    debugger = PrecisionDebugger(config_path=str(config))
    if hang is not None:
        debugger.register_custom_api(sys.modules[__name__], "slow", "Slow")
    base = torch.linspace(-1, 1, 16 * 24).reshape(16, 24)
    large = torch.linspace(-3, 3, 40_000)
    target = torch.zeros(16, 24)
    step = 0
    while steps is None or step < steps:
        factor = step % PERIOD + 1
        batch, big = base * factor, large * factor
        for parameter in net.parameters():
            parameter.grad = None
        if step == greedy:
            threading.Thread(target=take_all_memory, daemon=True).start()
        debugger.start(model=net)
        out = net(batch, step == hang)
        oracle.passed()
        torch.cos(big)
        oracle.passed()
        oracle.passed()
        loss = torch.nn.functional.mse_loss(out, target)
        oracle.passed()
        oracle.passed()
        loss.backward()
        oracle.passed()
        debugger.stop()
        debugger.step()
        oracle.step_ended(step)
        step += 1
        if pause:
            time.sleep(pause)
    debugger.wait()


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--oracle", type=pathlib.Path)
    parser.add_argument("--hang", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve(train)
    else:
        train(options.config, options.oracle, hang=options.hang, steps=options.steps, pause=options.pause)


if __name__ == "__main__":
    main()

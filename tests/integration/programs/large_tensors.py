"""Saves tensors of some MiB, other ones at each step, and writes the step it has reached into --progress.

--hold-after N: after step N waits until the file --go appears.
--fork: forks at each step; the child computes and leaves by the ordinary way out.
"""

import argparse
import os
import pathlib
import sys

import torch
from train_steps import hold, report


def compute(generator):
    left = torch.rand(700, 512, generator=generator)
    return torch.add(torch.matmul(left, torch.rand(512, 900, generator=generator)), 1)


def child():
    torch.abs(torch.ones(100_000))
    sys.exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--progress", type=pathlib.Path)
    parser.add_argument("--hold-after", type=int)
    parser.add_argument("--go", type=pathlib.Path)
    parser.add_argument("--fork", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)

    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=options.config)
    generator = torch.Generator().manual_seed(5)
    for step in range(options.steps):
        debugger.start()
        compute(generator)
        if options.fork:
            process = os.fork()
            if process == 0:
                child()
            _, status = os.waitpid(process, 0)
            assert status == 0
        debugger.stop()
        debugger.step()
        report(options.progress, str(step))
        if step == options.hold_after:
            hold(options.go)


if __name__ == "__main__":
    main()

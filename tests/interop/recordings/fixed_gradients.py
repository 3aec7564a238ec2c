"""Gradients that are the same on every machine, given to task grad_probe of whichever msprobe is installed.

fixed_gradients.py CONFIG [--other]: three calls of an optimizer. --other: some elements have the other sign from the
second on.
"""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger


def gradient(shape, seed):
    """Sixteenths, whose squares have exact sums; some are zeros of both signs."""
    count = torch.Size(shape).numel()
    return torch.tensor([((i * 79 + seed) % 31 - 15) / 16 * (-1 if i % 5 == 0 else 1) for i in range(count)]).view(
        shape
    )


def main():
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Conv1d(5, 3, 2), torch.nn.LayerNorm(3))
    debugger = PrecisionDebugger(config_path=sys.argv[1])
    debugger.monitor(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for step in range(3):
        for number, (name, parameter) in enumerate(model.named_parameters()):
            parameter.grad = gradient(parameter.shape, 10 * step + number)
            if "--other" in sys.argv and step > 0 and name == "0.weight":
                parameter.grad.view(-1)[:4].neg_()
        optimizer.step()


if __name__ == "__main__":
    main()

"""A small training run with a ConfigChecker, for either tool: `train(path)` of whichever msprobe is installed."""

import random

import numpy
import torch


def drawn():
    return [random.random(), numpy.random.rand(), torch.rand(2)]


def train(path):
    from msprobe.core.config_check import ConfigChecker

    ConfigChecker.apply_patches("pytorch")
    torch.manual_seed(3)
    for _ in range(3):
        drawn()
    torch.zeros(3).exponential_()
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.arange(12.0).reshape(3, 4) / 7)
        model[0].bias.copy_(torch.tensor([0.5, -2.0, 3.0]))

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, batch, *, mask=None, name=""):
            return self.inner(batch["input"]).sum()

    wrapped = Wrapped()
    checker = ConfigChecker([wrapped], None, str(path))
    for step in range(2):
        batch = {"input": torch.arange(8.0).reshape(2, 4) - step, "ids": torch.tensor([[3, 1], [2, 0]]), "words": ["a"]}
        wrapped(batch, mask=torch.tensor([True, False]), name="x")
    return checker


if __name__ == "__main__":
    import sys

    train(sys.argv[1])

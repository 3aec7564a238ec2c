"""PrecisionChecker of either tool over small nets: compile_checks.py DIRECTORY. Writes NAME.csv files and said.json."""

import json
import os
import pathlib
import sys

import torch
from msprobe.pytorch.compile_accuracy_checker.precision_checker import PrecisionChecker
from torch._dynamo.backends.debugging import aot_eager


class Block(torch.nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.up = torch.nn.Linear(4, 8)
        self.drop = torch.nn.Dropout(dropout)
        self.down = torch.nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(self.drop(torch.relu(self.up(x))))


def net(dropout=0.0):
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(dropout), Block(dropout))


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()


def step(model):
    loss = model(X).square().mean()
    loss.backward()
    return loss


def main(directory):
    os.chdir(directory)
    said = {}

    def check(name, types=(Block,), model=None, factor=1.0, **options):
        graphs = 0

        def backend(graph, inputs):
            nonlocal graphs
            graphs += 1
            right = aot_eager(graph, inputs)
            return lambda *args: [each * factor for each in right(*args)]

        model = net() if model is None else model
        checker = PrecisionChecker(backend=backend, **options)
        if types:
            checker.wrap_by_policy(model, types)
        result = checker.compare(step, model)
        checker.report(result, f"{name}.csv")
        said[name] = {"all_pass": result.all_pass, "graphs": graphs, "training": model.training}

    check("single")
    check("both", types=(torch.nn.Linear,), single_pass=False)
    check("wrong", factor=1.5)
    check("slightly wrong", factor=1.0005)
    check("inside", single_pass=False)
    check("cast", cast_dtype=torch.bfloat16, single_pass=False)
    check("unwrapped", types=(), factor=1.5, single_pass=False)
    check("dropout", model=net(0.5))
    check("evaluated", model=net(0.5).eval())
    pathlib.Path("said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""PrecisionChecker over a small net: checked_compile.py DIRECTORY. Writes csv files and said.json there."""

import json
import os
import pathlib
import sys

import torch
from msprobe._common.errors import MsprobeError
from msprobe.pytorch.compile_accuracy_checker.precision_checker import PrecisionChecker
from torch._dynamo.backends.debugging import aot_eager


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 8)
        self.down = torch.nn.Linear(8, 4)

    def forward(self, x, cache=None, *, scale=1.0):
        h = torch.nn.functional.dropout(torch.relu(self.up(x)), training=self.training) * scale
        if cache is not None:
            h = h + (cache[-1] if cache else 0)
            cache.append(h)
        return x + self.down(h)


class Net(torch.nn.Module):
    def __init__(self, blocks=3):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x):
        cache = []
        for block in self.blocks:
            x = block(x, cache, scale=torch.tensor(2.0))
        return self.blocks[0](x)  # again


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def step(model):
    loss = model(X).square().mean()
    loss.backward()
    return loss


def backend_that_errs(number, factor=1.001):
    """aot_eager, but the graph that is compiled as this number, from 0, gives results that are too large."""
    seen = -1

    def backend(graph, inputs):
        nonlocal seen
        seen += 1
        wrong = seen == number
        right = aot_eager(graph, inputs)
        return lambda *args: [each * factor if wrong else each for each in right(*args)]

    return backend


def main(directory):
    os.chdir(directory)
    said = {}

    def check(name, *, model=None, fn=step, ignored=None, **options):
        model = Net() if model is None else model
        checker = PrecisionChecker(data_dir="store", **options)
        checker.wrap_all_children(model, depth=0)
        if ignored is not None:
            checker.ignore(model.get_submodule(ignored))
        before = {each: value.clone() for each, value in model.state_dict().items()}
        result = checker.compare(fn, model)
        checker.report(result, f"{name}.csv")
        said[name] = {
            "all_pass": result.all_pass,
            "runs": result.runs,
            "untouched": all(torch.equal(before[each], value) for each, value in model.state_dict().items())
            and all(parameter.grad is None for parameter in model.parameters())
            and not any(type(module).__name__ == "OptimizedModule" for module in model.modules()),
        }

    check("clean_single")
    check("clean_both", single_pass=False, dump_graphs=True, graph_dir="graphs")
    check("wrong_single", backend=backend_that_errs(1))
    check("wrong_both", backend=backend_that_errs(1), single_pass=False, ignored="blocks.2")
    check("small_in_half", backend=backend_that_errs(1), model=Net().bfloat16(),
          fn=lambda model: model(X.bfloat16()).float().square().mean())  # fmt: skip

    graphs = 0

    def counting(graph, inputs):
        nonlocal graphs
        graphs += 1
        return graph.forward

    model = Net()
    checker = PrecisionChecker(backend=counting, cast_dtype=torch.bfloat16, single_pass=False, data_dir="store")
    checker.wrap_by_policy(model, (Block,))
    said["cast"] = {"all_pass": checker.compare(step, model).all_pass, "graphs": graphs}

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    checker = PrecisionChecker(backend=backend_that_errs(2), data_dir="store", capture_input=False)
    checker.wrap_by_policy(model, (Block,))
    checker.install(model)
    loss = step(model)
    optimizer.step()
    after = [parameter.clone() for parameter in model.parameters()]
    result = checker.collect(loss)
    checker.report(result, "installed.csv")
    said["installed"] = {
        "kept": all(torch.equal(was, now) for was, now in zip(after, model.parameters())),
        "compiled": sum(type(module).__name__ == "OptimizedModule" for module in model.modules()),
    }

    model = Net(1)
    checker = PrecisionChecker(data_dir="store", single_pass=False)
    result = checker.compare(step, model)
    said["unwrapped"] = [diff.name for diff in result.diffs if not diff.note]

    said["refused"] = []
    for wrong in (
        lambda: PrecisionChecker(backend="inductr"),
        lambda: PrecisionChecker(cast_dtype="bf16"),
        lambda: PrecisionChecker(data_dir="store").compare(lambda model: model(X), Net(1)),
        lambda: PrecisionChecker(data_dir="store").collect(),
        lambda: PrecisionChecker(data_dir="store").install(Net(1)),
        lambda: PrecisionChecker().wrap("blocks.0"),
        lambda: PrecisionChecker().wrap_by_policy(Net(1), ["Linear"]),
        lambda: PrecisionChecker().wrap(Net(1).blocks),
        lambda: PrecisionChecker().wrap_by_policy(Net(1), [torch.nn.Conv2d]),  # said, and not refused
    ):
        try:
            wrong()
        except MsprobeError as error:
            said["refused"].append(str(error))
    pathlib.Path("said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Checks that hold while capturing and after stop(). Writes a JSON object: check -> null, or the failure."""

import argparse
import copy
import functools
import inspect
import json
import pathlib
import pickle
import traceback

import torch
import torch.nn.functional as F
from torch import relu as early_relu  # bound before the debugger exists
from torch.nn.functional import silu as early_silu

NAMED = {
    "torch.add": lambda: torch.add,
    "torch.matmul": lambda: torch.matmul,
    "torch.relu": lambda: torch.relu,
    "torch.einsum": lambda: torch.einsum,
    "F.relu": lambda: F.relu,
    "F.gelu": lambda: F.gelu,
    "F.linear": lambda: F.linear,
    "F.conv2d": lambda: F.conv2d,
    "F.softmax": lambda: F.softmax,
    "Tensor.add": lambda: torch.Tensor.add,
    "Tensor.__add__": lambda: torch.Tensor.__add__,
    "Tensor.__pow__": lambda: torch.Tensor.__pow__,
    "Module.__call__": lambda: torch.nn.Module.__call__,
}
BEFORE = {name: get() for name, get in NAMED.items()}
# As a tensor subclass keeps its own implementations, and as the compiler keeps what it knows.
TABLE = {get(): name for name, get in NAMED.items()}


def scripted(x):
    return F.relu(x) + torch.add(x, 1)


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)

    def forward(self, x):
        return F.gelu(self.lin(x)) * 2


def check_identity():
    for name, get in NAMED.items():
        assert get() is BEFORE[name] or get() == BEFORE[name], f"{name} is another object"
    assert torch.nn.functional.gelu is F.gelu
    activation = F.gelu
    assert activation is F.gelu, "F.gelu is not F.gelu"


def check_tables():
    for name, get in NAMED.items():
        assert TABLE.get(get()) == name, f"a table that was built before does not find {name}"


def check_pickle():
    for name in ("torch.add", "torch.matmul", "torch.relu", "F.relu", "F.gelu", "F.softmax"):
        function = NAMED[name]()
        assert pickle.loads(pickle.dumps(function)) is function, name
        assert copy.deepcopy(function) is function, name
    module = Scripted()
    again = pickle.loads(pickle.dumps(module))
    x = torch.ones(1, 4)
    assert torch.equal(module(x), again(x))
    copy.deepcopy(module)


def check_names():
    assert F.relu.__name__ == "relu" and F.relu.__module__ == "torch.nn.functional"
    assert torch.add.__name__ == "add"
    assert F.relu.__doc__ and torch.add.__doc__


def check_signature():
    assert list(inspect.signature(F.relu).parameters) == ["input", "inplace"]
    assert "inplace" in inspect.getsource(F.relu)


def check_jit_script():
    function = torch.jit.script(scripted)
    x = torch.ones(4)
    assert torch.equal(function(x), scripted(x))
    module = torch.jit.script(Scripted())
    module(torch.ones(1, 4))


def check_jit_trace():
    module = Scripted()
    x = torch.ones(2, 4)
    traced = torch.jit.trace(module, x)
    assert torch.equal(traced(x), module(x))


def check_compile(backend):
    torch._dynamo.reset()
    function = torch.compile(scripted, fullgraph=True, backend=backend)
    x = torch.randn(4)
    assert torch.equal(function(x), scripted(x))
    module = Scripted()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    y = torch.randn(2, 4, requires_grad=True)
    torch.testing.assert_close(compiled(y), module(y))
    compiled(y).sum().backward()
    assert y.grad is not None


def check_functional_transforms():
    x = torch.randn(3)
    torch.testing.assert_close(torch.func.grad(lambda v: torch.sin(v).sum())(x), torch.cos(x))
    torch.vmap(lambda v: torch.add(v, 1))(torch.ones(2, 3))
    torch.autograd.functional.jacobian(lambda v: torch.exp(v), x)


def check_torch_function_subclass():
    class Mine(torch.Tensor):
        pass

    assert type(torch.add(torch.ones(2).as_subclass(Mine), 1)) is Mine
    assert torch.overrides.has_torch_function((torch.ones(1),)) is False


def check_fake_tensors():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        assert torch.add(torch.ones(2), 1).shape == (2,)


def check_deterministic_partial():
    half = functools.partial(torch.add, alpha=2)
    assert half(torch.ones(1), torch.ones(1)).item() == 3


CHECKS = {
    "identity": check_identity,
    "tables": check_tables,
    "pickle": check_pickle,
    "names": check_names,
    "signature": check_signature,
    "jit.script": check_jit_script,
    "jit.trace": check_jit_trace,
    "compile eager": functools.partial(check_compile, "eager"),
    "compile aot_eager": functools.partial(check_compile, "aot_eager"),
    "transforms": check_functional_transforms,
    "torch function": check_torch_function_subclass,
    "fake tensors": check_fake_tensors,
    "partial": check_deterministic_partial,
}


def outcome(check):
    try:
        check()
    except BaseException:  # whatever it is, the test reads it
        return traceback.format_exc(limit=-4)
    return None


def recorded_part():
    """Calls whose records the test looks for: early-bound names, a namedtuple, and print, which leaves none."""
    x = torch.randn(3, 4)
    early_relu(x)
    early_silu(x)
    print(x)
    repr(x)
    pair = torch.max(x, dim=1)
    assert type(pair) is torch.return_types.max and pair.values.shape == (3,)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=options.config)
    model = Scripted()
    found = {}

    def checks(when):
        for name, check in CHECKS.items():
            found[f"{name} {when}"] = outcome(check)

    checks("constructed")
    debugger.start(model=model)
    recorded_part()
    debugger.stop()
    debugger.step()
    debugger.start(model=model)
    checks("capturing")
    debugger.stop()
    debugger.step()
    checks("stopped")
    debugger.start(model=model)
    model(torch.ones(1, 4)).sum().backward()
    debugger.stop()
    debugger.step()
    pathlib.Path(options.out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

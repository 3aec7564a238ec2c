"""Plants faults in torch.compile and asks bisect_compile for each: bisected.py OUT NAME...

OUT gets {name: null, or the fault's fields with "said"}.
"""

import contextlib
import dataclasses
import json
import pathlib
import sys
import unittest.mock

import torch
import torch._dynamo
import torch._inductor.config
from msprobe._common.errors import MsprobeError
from msprobe.pytorch import bisect_compile
from torch._dynamo.backends.registry import _COMPILER_FNS, lookup_backend
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings

aten = torch.ops.aten


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x):
        h = torch.sigmoid(self.up(x)) * 2.0
        return torch.tanh(self.down(h)) + x


class WrongConstant(CustomGraphPass):
    def __call__(self, graph):
        for node in list(graph.nodes):
            if node.target is aten.mul.Tensor and node.args[1] == 2.0:
                with graph.inserting_after(node):
                    wrong = graph.call_function(aten.mul.Tensor, (node.args[0], 2.01))
                wrong.meta = dict(node.meta)
                node.replace_all_uses_with(wrong)
                graph.erase_node(node)

    def uuid(self):
        return "wrong constant"


@contextlib.contextmanager
def wrong_lowering(operator):
    """What inductor makes of the operator is a thousandth too large."""
    former = lowerings[operator]
    lowerings[operator] = lambda x: lowerings[aten.mul.Tensor](former(x), 1.001)
    try:
        yield
    finally:
        lowerings[operator] = former


def offset_and_back(x, y):
    return ((x * y + 100) - 100) * y  # bfloat16 has 8 bits: eagerly each operator rounds, fused only the last


def net_fault(planted):
    torch.manual_seed(0)
    net, x = Net().requires_grad_(False), torch.randn(4, 8)
    with planted:
        return bisect_compile(net, x)


def clean():
    """Forward and backward, with dropout; the same weights and random numbers at the end as before."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(Net(), torch.nn.Dropout())
    before, drawn = {name: each.clone() for name, each in net.state_dict().items()}, torch.get_rng_state()
    found = bisect_compile(net, torch.randn(4, 8, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(before[name], each) for name, each in net.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state()) and all(each.grad is None for each in net.parameters())
    return found


def half():
    torch.manual_seed(0)
    return bisect_compile(offset_and_back, *(torch.randn(4, 64, dtype=torch.bfloat16) for _ in range(2)))


def wrong_decomposition():
    """What every backend behind aot_eager_decomp_partition puts in place of an operator is wrong."""
    torch.manual_seed(0)
    with unittest.mock.patch.dict(decompositions, {aten.silu.default: lambda x: x * x.sigmoid() * 1.01}):
        return bisect_compile(torch.nn.functional.silu, torch.randn(4, 8))


def changing():
    """Says why, for lack of a fault."""
    numbers = iter(range(100))
    try:
        bisect_compile(lambda x: x + next(numbers), torch.zeros(2))
    except MsprobeError as error:
        print(error)


def after_a_backend_that_raises():
    """One on the way to inductor cannot be tried: what differs is found all the same."""
    with unittest.mock.patch.dict(_COMPILER_FNS, {"aot_eager": _raise}), wrong_lowering(aten.sin.default):
        return bisect_compile(lambda x: x.sin() * 2, torch.randn(4, 8), backward=False)


def _raise(graph, inputs):
    raise ValueError("not here\nat all")


_raise._tags = ()

CASES = {
    "clean": clean,
    "lowering": lambda: net_fault(wrong_lowering(aten.tanh.default)),
    "pass": lambda: net_fault(torch._inductor.config.patch(post_grad_custom_post_pass=WrongConstant())),
    "half": half,
    "decomposition": wrong_decomposition,
    "changing": changing,
    "raising": after_a_backend_that_raises,
}


def main(out, *names):
    found = {}
    lookup_backend("aot_eager")  # loads it
    for name in names:
        fault = CASES[name]()
        found[name] = None if fault is None else {**dataclasses.asdict(fault), "said": str(fault)}
    pathlib.Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

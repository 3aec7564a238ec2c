"""Functions keep their identity while they are intercepted, and are the very same afterwards."""

import pickle
import types

import pytest
import torch
import torch.nn.functional as F
from msprobe import _agent
from msprobe._common.swaps import CodeSwap, read_names
from msprobe.pytorch.interception import Interception
from torch import add as early_bound_add


@pytest.fixture
def interception():
    made = Interception()
    made.install(with_apis=True)
    yield made
    made.restore()


def test_reads_names_by_heading():
    sections = read_names("# note\n[Torch torch]\nadd sub\nmul\n\n[risk LOW]\nview\n")
    assert sections == {"Torch torch": ["add", "sub", "mul"], "risk LOW": ["view"]}


def test_identity_and_pickling_hold(interception):
    assert torch.add is early_bound_add
    assert pickle.loads(pickle.dumps(torch.add)) is torch.add
    assert pickle.loads(pickle.dumps(F.relu)) is F.relu
    assert torch.nn.TransformerEncoderLayer(4, 2, 4, activation=F.gelu).activation is F.gelu


def test_calls_give_what_they_gave(interception):
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(F.relu(x), torch.tensor([0.0, 2.0]))
    assert torch.equal(torch.add(x, x, alpha=2), 3 * x)
    assert torch.equal(-x, x.neg())
    assert torch.equal(1.0 / x, x.reciprocal())
    assert (x + 1).tolist() == [0.0, 3.0]
    with pytest.raises(TypeError, match="add"):
        torch.add(x)


def test_restore_leaves_nothing_behind():
    names = ("relu", "linear", "softmax")
    before = [(getattr(F, name), getattr(getattr(F, name), "__code__", None)) for name in names]
    tensor_before = dict(vars(torch.Tensor))
    made = Interception()
    made.prepare()
    assert [(getattr(F, name), getattr(getattr(F, name), "__code__", None)) for name in names] == before
    assert dict(vars(torch.Tensor)) == tensor_before
    made.install(with_apis=True)
    made.restore()
    assert [(getattr(F, name), getattr(getattr(F, name), "__code__", None)) for name in names] == before
    assert dict(vars(torch.Tensor)) == tensor_before


def test_what_is_replaced_between_preparing_and_installing_is_intercepted(monkeypatch):
    made = Interception()
    made.prepare()

    def relu(x):
        return x + 7

    old, plain = F.relu.__code__, relu.__code__
    monkeypatch.setattr(F, "relu", relu)
    made.install(with_apis=True)
    try:
        assert relu.__code__ is not plain
        assert F.relu(torch.zeros(1)).item() == 7
    finally:
        made.restore()
    assert relu.__code__ is plain
    monkeypatch.undo()
    assert F.relu.__code__ is old


def test_what_has_no_hash_may_stand_in_the_place_of_a_listed_function(monkeypatch):
    class Add:
        def __eq__(self, other):
            raise AssertionError("it is compared")

        def __call__(self, x, y):
            return early_bound_add(x, y) + 7

    made = Interception()
    made.prepare()
    monkeypatch.setattr(torch, "add", Add())
    x, y = torch.zeros(1), torch.ones(1)
    for _ in range(2):
        made.install(with_apis=True)
        try:
            assert torch.add(x, y).item() == 8
            assert torch.sub(y, x).item() == 1
        finally:
            made.restore()
    monkeypatch.undo()
    assert torch.add is early_bound_add
    assert torch.add(x, y).item() == 1


def test_code_swap_keeps_closures_and_defaults():
    def made(scale):
        def function(value, offset=3, *, sign=1):
            return sign * (value * scale + offset)

        return function

    function = made(2)
    swap = CodeSwap(
        function, lambda twin: _agent.intercept(twin, "api", api=_agent.make_api("Custom.function", "FOCUS"))
    )
    swap.install()
    try:
        assert function(5) == 13
        assert function(5, 1, sign=-1) == -11
        assert isinstance(function, types.FunctionType)
    finally:
        swap.restore()
    assert function.__code__ is swap.original

"""What a TrainingWatch shows, of real optimizers and clipping."""

import msprobe
import pytest
import torch
from msprobe._common.errors import MsprobeError
from msprobe._common.gradient_watch import GradientWatch
from msprobe.pytorch._training_watch import TrainingWatch


class Shown:
    """An observer that keeps what it was shown, and the gradients as they were."""

    def __init__(self):
        self.clipped, self.stepped_, self.micro_batches = [], [], []

    def accumulated(self, name, parameter, micro_batch):
        self.micro_batches.append((name, micro_batch))

    def clipping(self, parameters):
        self.clipped.append({name: each.grad.clone() for name, each in parameters.items()})

    def stepping(self, optimizer, parameters):
        pass

    def stepped(self, optimizer, parameters):
        self.stepped_.append(sorted(parameters))


@pytest.fixture
def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))


@pytest.fixture
def shown(model):
    shown = Shown()
    watch = TrainingWatch(shown, accumulation=True)
    watch.add_model(model.named_parameters())
    shown.watch = watch
    yield shown
    watch.close()


def backward(model):
    model(torch.ones(3, 4)).square().sum().backward()


def test_clipping_by_a_norm_that_was_made_before_is_seen_once(model, shown):
    backward(model)
    before = model[0].weight.grad.clone()
    norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters()])
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, norm)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    assert len(shown.clipped) == 2
    assert torch.equal(shown.clipped[0]["0.weight"], before)
    assert not torch.equal(shown.clipped[1]["0.weight"], before)


def test_micro_batches_are_counted_by_the_optimizer_that_takes_them(model, shown):
    first, second = torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.SGD(model[1].parameters(), 0.1)
    shown.watch.add_optimizer(first)
    shown.watch.add_optimizer(second)
    backward(model)
    first.step()
    backward(model)
    assert shown.micro_batches[-4:].count(("1.weight", 1)) == 1, "the second one has not stepped yet"
    assert ("0.weight", 0) in shown.micro_batches[-4:]
    assert shown.stepped_ == [["0.bias", "0.weight"]]


def test_a_second_model_has_names_of_its_own(model, shown):
    shown.watch.add_model(torch.nn.Linear(2, 2).named_parameters())
    shown.watch.add_model(torch.nn.Sequential(torch.nn.Linear(2, 2)).named_parameters())
    assert {"weight", "bias", "1.0.weight", "1.0.bias"} <= set(shown.watch.parameters)
    assert len(shown.watch.parameters) == 8


def test_a_model_that_is_gone_is_not_kept_for_its_gradients(model):
    watch = GradientWatch()
    watch.add(model.named_parameters())
    other = torch.nn.Linear(4, 4)
    watch.add([("0.weight", other.weight)])
    assert len(watch) == 5
    other.weight.grad = torch.ones(4, 4)
    assert [name for name, _ in watch.gradients([], lambda parameter: parameter.grad)] == ["1.0.weight"]
    del other
    assert len(watch) == 4 and watch.gradients([], lambda parameter: parameter.grad) == []


def test_a_compiled_step_that_clips_goes_on(model, shown):
    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        return loss

    compiled = torch.compile(step, backend="eager")
    expected = step(torch.ones(3, 4))
    for each in model.parameters():
        each.grad = None
    assert torch.equal(compiled(torch.ones(3, 4)), expected)
    assert len(shown.clipped) == 2


@pytest.mark.parametrize("given", [3, "experts", [3]])
def test_names_of_series_are_a_list_of_texts(model, given):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(MsprobeError, match=r"model_series is .*; it should be a list of strings"):
        msprobe.watch(model, optimizer, model_series=given)

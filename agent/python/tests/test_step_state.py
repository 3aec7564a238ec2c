"""What debugger.replay brings back between its two passes, beside what a whole program shows (tests/integration)."""

import dataclasses

import torch
from msprobe.pytorch._step_state import StepState


class Late(torch.nn.Module):
    """Makes a mask, a buffer and a parameter in its first forward."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", None)
        self.register_parameter("scale", None)

    def forward(self, x):
        first = self.mask is None
        if first:
            self.mask, self.scale = torch.ones(2), torch.nn.Parameter(torch.ones(2))
            self.register_buffer("seen", torch.zeros(1))
        return first, x * self.mask


def test_what_a_first_forward_made_is_made_again():
    model = Late()
    state = StepState([model], None, ())
    assert model(torch.ones(2))[0]
    state.restore()
    assert model.mask is None and model.scale is None and not hasattr(model, "seen")
    assert model(torch.ones(2))[0], "the second pass takes the way of the first"


@dataclasses.dataclass(slots=True)
class Batch:
    x: torch.Tensor
    rest: list


def test_tensors_of_a_dataclass_with_slots_are_restored():
    batch = Batch(torch.zeros(3), [torch.zeros(2)])
    state = StepState([], None, (batch,))
    batch.x += 1
    batch.rest[0] += 1
    state.restore()
    assert not batch.x.any() and not batch.rest[0].any()

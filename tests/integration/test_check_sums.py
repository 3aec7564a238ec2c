"""Long sums that cancel: what float32 costs is right, and what a wrong kernel leaves out is not."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from msprobe_client import Client
from msprobe_client.check import replay
from msprobe_client.check.arguments import Arguments
from msprobe_client.check.measuring import Measuring
from msprobe_client.check.operators import SUMS_OF_PRODUCTS
from msprobe_client.proto import check_pb2

SEED = 5


@dataclass
class Convolution:
    """Before BatchNorm: each gradient adds up 12,544 terms, and those of the bias cancel to nothing."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    grad: torch.Tensor

    def gradients(self, **other: torch.Tensor) -> dict[str, torch.Tensor]:
        """As the CPU computes them in float32, perhaps of other tensors."""
        given = self.arguments(**other)
        grad = other.get("grad", self.grad)
        return dict(replay.run(conv2d, given, mutates=False, grad_outputs=[grad], seed=SEED).gradients)

    def arguments(self, **other: torch.Tensor) -> Arguments:
        tensors = [other.get(name, getattr(self, name)) for name in ("x", "weight", "bias")]
        made = Arguments([*tensors, 1, 1], {})
        made.tensors = [(f"input.{i}", tensor) for i, tensor in enumerate(tensors)]
        made.needs_grad = [True, True, True]
        return made


conv2d = torch.nn.functional.conv2d
WEIGHT, BIAS = "input.1", "input.2"


@pytest.fixture(scope="module")
def convolution():
    torch.manual_seed(1)
    x = torch.randn(16, 3, 28, 28) + 0.3 * torch.arange(16).view(-1, 1, 1, 1)
    grad = torch.randn(16, 8, 28, 28) + torch.randn(16, 8, 1, 1)
    grad -= grad.mean((0, 2, 3), keepdim=True)
    return Convolution(x, torch.randn(8, 3, 3, 3), torch.randn(8), grad * 1e-4)


@pytest.fixture(scope="module")
def judged(convolution, tmp_path_factory):
    """judged(place, gradient): whether the default policy lets it pass, as check does on a CPU."""
    given = convolution.arguments()
    known = {"mutates": False, "seed": SEED}
    wide = [convolution.grad.double()]
    golden = replay.run(conv2d, given.mapped(replay.wide), grad_outputs=wide, **known)
    plain = replay.rounded_otherwise(conv2d, given, grad_outputs=[convolution.grad], sums=True, **known)
    with (
        Client(data_dir=tmp_path_factory.mktemp("sums") / "data", create=True) as client,
        Measuring(client, "default") as measuring,
    ):

        def passes(place: str, gradient: torch.Tensor) -> bool:
            sides = dict(golden.gradients)[place], dict(plain.gradients)[place].float()
            return measuring.measured("conv2d", gradient, *sides).verdict.outcome == check_pb2.Verdict.PASS

        yield passes


def in_sequence(terms: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension, one term after the other."""
    return terms.cumsum(-1)[..., -1]


def test_what_float32_costs_is_right(convolution, judged):
    assert "conv2d" in SUMS_OF_PRODUCTS
    gradients = convolution.gradients()
    assert judged(WEIGHT, gradients[WEIGHT])
    assert judged(BIAS, gradients[BIAS])
    by_channel = convolution.grad.transpose(0, 1).reshape(8, -1)
    assert judged(BIAS, in_sequence(by_channel))
    assert judged(BIAS, in_sequence(by_channel.flip(-1)))


def tensor_float_32(tensor: torch.Tensor) -> torch.Tensor:
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def without_a_position(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[3, :, 14, 14] = 0
    return tensor


@pytest.mark.parametrize("change", [tensor_float_32, without_a_position, lambda grad: grad.bfloat16().float()])
def test_what_a_wrong_kernel_does_is_not(convolution, judged, change: Callable[[torch.Tensor], torch.Tensor]):
    """One of 12,544 positions left out, or operands of fewer bits."""
    wrong = convolution.gradients(grad=change(convolution.grad))
    assert not judged(WEIGHT, wrong[WEIGHT])
    assert not judged(BIAS, wrong[BIAS])

"""A step with the kinds of calls that a second run could disturb, plainly and then captured: says whether the bits are
the same. torch.distributed is not initialised."""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger
from torch.nn import functional

NEAR_ONE = torch.linspace(1.0002, 1.0004, 4096).reshape(64, 64)
NARROW = torch.linspace(-3, 3, 512).reshape(2, 256).bfloat16()
ZEROS, SPREAD = torch.zeros_like(NARROW), NARROW.abs() + 0.3


def step():
    """Every tensor that the step leaves."""
    torch.manual_seed(1)
    kept = [torch.log(NEAR_ONE), functional.dropout(NEAR_ONE, 0.5)]
    changed = torch.linspace(0, 1, 8)
    kept += [changed, changed.mul_(3), changed.sqrt_()]
    mean, variance = torch.zeros(64), torch.ones(64)
    kept += [functional.batch_norm(NEAR_ONE, mean, variance, training=True), mean, variance]
    weight = NARROW.clone().requires_grad_()
    losses = functional.gaussian_nll_loss(weight, ZEROS, SPREAD, reduction="none")  # rounds at each of its steps
    torch.sigmoid(losses).float().sum().backward()
    try:
        torch.matmul(NEAR_ONE, torch.ones(3))
    except RuntimeError:
        kept.append(torch.rand(4))
    return [*kept, losses.detach(), weight.grad, torch.get_rng_state()]


def main():
    plain = step()
    debugger = PrecisionDebugger(sys.argv[sys.argv.index("--config") + 1])
    debugger.start()
    captured = step()
    debugger.stop()
    debugger.step()
    print("SAME", all(torch.equal(one, other) for one, other in zip(plain, captured)))
    better = functional.gaussian_nll_loss(NARROW.float(), ZEROS.float(), SPREAD.float(), reduction="none").bfloat16()
    print(
        "BETTER", torch.equal(captured[-3], better), captured[-3].float().mean().item(), plain[-3].float().mean().item()
    )
    debugger.wait()


main()

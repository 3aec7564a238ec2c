"""One step each of torch.ops, indexing and the root module; checkpointing; threads. `--config FILE`."""

import argparse
import threading

import torch
from say import say
from torch.utils.checkpoint import checkpoint


@torch.library.custom_op("probing::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


scale.register_autograd(lambda context, gradient: (gradient * 2.0, None))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = scale(self.inner(x), 2.0)
        y = torch.ops.probing.scale.default(torch.ops.probing.scale(y, 2.0), 2.0)
        return torch.ops.aten.add(y, y)[0]


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return torch.mul(gradient, 2)


def operators(debugger):
    net = Net()
    debugger.start(net)
    net(torch.ones(2, 4)).sum().backward()


def recomputed(debugger, reentrant):
    debugger.start()
    x = torch.ones(3, requires_grad=True)
    y = checkpoint(lambda value: torch.sin(torch.cos(value)), x, use_reentrant=reentrant)
    Doubling.apply(y).sum().backward()


def threads(debugger):
    debugger.start()
    barrier = threading.Barrier(3)

    def work(number):
        barrier.wait()
        for call in range(50):
            torch.mul(torch.full((2,), float(1000 * number + call)), 1.0)

    workers = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for worker in workers:
        worker.start()
    work(0)
    for worker in workers:
        worker.join()


def linears(debugger):
    debugger.start()
    weight = torch.arange(12.0).reshape(3, 4).requires_grad_()
    for shape in ((2, 4), (2, 5, 4)):
        weight.grad = None
        torch.nn.functional.linear(
            torch.arange(float(torch.Size(shape).numel())).reshape(shape), weight
        ).sum().backward()
        say("WEIGHT", weight.grad.max().item(), weight.grad.min().item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    options = parser.parse_args()
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=options.config)
    for step in (operators, lambda d: recomputed(d, False), lambda d: recomputed(d, True), threads, linears):
        step(debugger)
        debugger.stop()
        debugger.step()
    assert torch.ops.probing.scale.default._schema and "__getitem__" not in vars(torch.Tensor), "all is put back"


if __name__ == "__main__":
    main()

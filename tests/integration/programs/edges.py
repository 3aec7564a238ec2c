"""Steps whose edges are known: by hand, with memory that comes back, in inference mode, and a model in training."""

import argparse

import nets
import torch
from msprobe.pytorch import PrecisionDebugger
from say import say
from torch.nn import functional as F


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.identity = torch.nn.Identity()

    def forward(self, x):
        return self.identity(self.inner(x))


def by_hand(model):
    weight = torch.randn(4, 4)
    a = torch.sigmoid(weight)  # Torch.sigmoid.0: outside
    b = torch.matmul(a, weight)  # Torch.matmul.0: same sigmoid, outside
    torch.exp(b[1])  # Torch.exp.0: a view by an operation that is not recorded
    torch.tanh(b.t())  # Torch.tanh.0: a view by Tensor.t.0
    _, where = torch.max(b, 1)  # Torch.max.0
    torch.square(where)  # Torch.square.0: the second output
    first, second = b[:2], b[2:]
    b.add_(1)  # Tensor.add_.0: in place
    torch.sin(b)  # Torch.sin.0: same add_
    first.mul_(2)  # Tensor.mul_.0: in place through a view
    torch.abs(b)  # Torch.abs.0: a view of what mul_ wrote
    torch.neg(second)  # Torch.neg.0: of memory that was written, by the count of all of it
    c = torch.ceil(a)
    with torch.no_grad():
        c[0] = 7  # not recorded
    torch.floor(c)  # Torch.floor.0: changed
    d = torch.sqrt(a)
    torch.log(d.detach())  # Torch.log.0: same
    F.relu(model(a))  # Functional.relu.0: the identity gave it out
    torch.erf(torch.from_numpy(d.numpy()))  # Torch.erf.0: the memory of sqrt, by another storage: outside


def memory_comes_back():
    """Each tensor is freed before the next is made, and comes to its address with the same version."""
    addresses = set()
    for i in range(150):
        made = torch.round(torch.full((64,), float(i)))  # Torch.round.i
        addresses.add(made.data_ptr())
        torch.trunc(made)  # Torch.trunc.i: same round.i
        del made
        unseen = torch.empty(64)  # not recorded: no producer
        unseen.fill_(i)
        torch.frac(unseen)  # Torch.frac.i: outside, or Tensor.fill_ where that is recorded
        del unseen
        loose = torch.zeros(64)
        torch.square(loose)  # Torch.square.i: outside
        del loose
    say(f"ADDRESSES {len(addresses)}")


def inference(model):
    with torch.inference_mode():
        x = torch.randn(4, 4)
        y = torch.sigmoid(x)
        torch.tanh(y)
        F.relu(model(y))


def train():
    torch.manual_seed(3)
    model = nets.qwen2()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = nets.tokens()

    def step():
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    debugger = PrecisionDebugger(config_path=parser.parse_args().config)
    torch.manual_seed(1)
    model = Outer()
    trained, step = train()
    steps = (
        (model, lambda: by_hand(model)),
        (model, memory_comes_back),
        (model, lambda: inference(model)),
        (trained, step),
        (trained, step),
    )
    for root, run in steps:
        debugger.start(model=root)
        run()
        debugger.stop()
        debugger.step()
    say("DONE")


if __name__ == "__main__":
    main()

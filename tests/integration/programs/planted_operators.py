"""python planted_operators.py DUMP_PATH [LEVEL]: ill-conditioned operators in one module, stable ones in another."""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger

dump_path, *level = sys.argv[1:]
torch.manual_seed(3)


class Sensitive(torch.nn.Module):
    def forward(self):
        noise = torch.randn(64)
        torch.log(1 + 1e-4 * noise.sign())  # near 1
        torch.softmax(1e4 + torch.randn(8, 32), -1)  # large logits
        torch.var(1e6 + torch.randn(8, 64), -1)  # of a large mean
        torch.sub(torch.full((64,), 1.00001), torch.ones(64))  # cancels
        terms = torch.rand(4096).bfloat16()
        torch.index_add(torch.zeros(1, dtype=torch.bfloat16), 0, torch.zeros(4096, dtype=torch.long), terms)
        torch.softmax(100 + torch.randn(8, 32).bfloat16(), -1)


class Stable(torch.nn.Module):
    def forward(self):
        x = torch.randn(16, 64)
        torch.relu(x)
        torch.add(x.abs(), 1.0)
        torch.matmul(x.abs(), x.abs().T)
        torch.nn.functional.layer_norm(x, (64,))
        torch.nn.functional.gelu(x)
        torch.exp(x)
        torch.sum(x.abs())
        torch.nn.functional.dropout(x, 0.5)
        half = x.bfloat16()
        torch.sum(half.abs())
        torch.matmul(half, half.T)
        torch.nn.functional.layer_norm(half, (64,))
        torch.mul(half, half)
        torch.softmax(x, -1)
        torch.tanh(x)
        torch.var(x, -1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sensitive = Sensitive()
        self.stable = Stable()

    def forward(self):
        self.sensitive()
        self.stable()


net = Net()
debugger = PrecisionDebugger(dump_path=dump_path, task="tensor", level=(level or ["mix"])[0])
debugger.start(net)
net()
debugger.stop()
debugger.step()
debugger.wait()

"""python checked_calls.py DUMP_PATH TASK: calls of every kind that acc_check knows, both ways, at level L1."""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger
from torch.nn import functional

dump_path, task = sys.argv[1:]
torch.manual_seed(7)
x = torch.randn(3, 5, 8, requires_grad=True)
weight = torch.randn(6, 8, requires_grad=True)
bias = torch.randn(6, requires_grad=True)
kernel = torch.randn(4, 3, 3, 3, requires_grad=True)
image = torch.randn(2, 3, 6, 6, requires_grad=True)
half = torch.randn(7, 9).to(torch.float16).requires_grad_()
brain = torch.randn(9, 7).to(torch.bfloat16).requires_grad_()
labels = torch.randint(0, 6, (15,))
integers = torch.arange(12, dtype=torch.int32)
not_finite = torch.tensor([1.0, float("nan"), float("inf"), 3.0])
double = torch.randn(5, dtype=torch.float64)

debugger = PrecisionDebugger(dump_path=dump_path, task=task, level="L1")
debugger.start()
y = functional.linear(x, weight, bias)
y = functional.gelu(y)
y = functional.layer_norm(y, (6,), weight=weight[:, 0].detach(), bias=bias)
values, indices = torch.topk(functional.softmax(y, dim=-1), 2, dim=-1)
product = torch.matmul(half, functional.relu(half).reshape(9, 7))
scaled = torch.exp(torch.mm(brain, brain.reshape(7, 9)) * 0.01)
torch.add(integers, 3)
positive = torch.gt(y, 0)
torch.gt(y, 0)
image = functional.max_pool2d(functional.conv2d(image, kernel, padding=1), 2)
dropped = functional.dropout(y, 0.5, True)
torch.mul(not_finite, 2)
torch.zeros(4).add_(1)
torch.sin(double)
chosen = torch.masked_select(y, positive)
powers = torch.pow(x, 2)
rows = functional.embedding(labels, weight)
loss = functional.cross_entropy(y.reshape(-1, 6), labels)
ends = [values, product, scaled, image, dropped, chosen, powers, rows, loss]
torch.autograd.backward(ends, [torch.linspace(-1, 1, each.numel()).to(each.dtype).reshape(each.shape) for each in ends])
debugger.stop()
debugger.step()
debugger.wait()

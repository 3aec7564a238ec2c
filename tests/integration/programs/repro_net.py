"""python repro_net.py DUMP_PATH TASK: operators of many kinds, forward and backward, at level L1."""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger

F = torch.nn.functional
dump_path, task = sys.argv[1:]
torch.manual_seed(7)
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 10)
)
debugger = PrecisionDebugger(dump_path=dump_path, task=task, level="L1")
debugger.start(net)
y = net(torch.randn(3, 1, 8, 8, requires_grad=True))
z = F.gelu(torch.matmul(y, y.transpose(0, 1)), approximate="tanh")
h = F.layer_norm(y, [10])
values, indices = torch.topk(F.softmax(h, dim=-1, dtype=torch.float64).float(), 3, dim=-1)
tied = torch.topk(torch.ones(2, 4), 2)
parts = torch.split(h, [4, 6], dim=1)
joined = torch.cat(list(parts), dim=1)
half = torch.mul(joined.to(torch.bfloat16), 0.1)
leaky = F.leaky_relu(h, 0.1)
out = torch.empty(3, 10)
torch.add(h.detach(), h.detach(), alpha=3, out=out)
strided = torch.exp(h.detach().t())
ints = torch.arange(6).add_(1)
flags = torch.logical_not(ints > 3)
wave = torch.fft.fft(h.detach())
turned = torch.mul(wave, wave)
empty = torch.mul(torch.empty(0, 3), 2)
scalar = torch.exp(torch.tensor(0.5))
special = torch.mul(torch.tensor([1.0, float("nan"), float("inf"), -0.0]), 2)
eight = torch.tensor([1.0, -2.5, 448.0]).to(torch.float8_e4m3fn)
wide = eight.to(torch.float32)
dropped = F.dropout(torch.ones(4000), 0.25)
drawn = torch.rand(2000)
same = torch.equal(h, h)
made = torch.full((2, 3), 1.5, device="cpu", dtype=torch.float16)
changed = h.detach().clone()
changed[0] = 2.0
changed.mul_(3.0)
square = torch.einsum("ij,kj->ik", h, h)
loss = F.cross_entropy(h, torch.randint(0, 10, (3,))) + z.sum() + half.float().mean() + leaky.sum() + square.mean()
loss.backward()
debugger.stop()
debugger.step()
debugger.wait()

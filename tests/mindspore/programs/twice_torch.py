"""The net of twice_mindspore.py in torch, two steps captured: python twice_torch.py OUT WEIGHTS.

WEIGHTS is a file that it writes.
"""

import sys

import numpy as np
import torch
from msprobe.pytorch import PrecisionDebugger
from torch import nn
from torch.nn import functional

OUT, WEIGHTS = sys.argv[1:]


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        weights = functional.softmax(torch.matmul(self.query(x), self.key(x).transpose(-1, -2)) * 0.5, dim=-1)
        return torch.matmul(weights, self.value(x))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm((width,))
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = torch.add(x, self.attention(self.norm(x)))
        return torch.add(x, self.down(torch.tanh(self.up(x))))


class TwiceWritten(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.pool, self.flat = nn.MaxPool2d(2, 2), nn.Flatten()
        self.proj = nn.Linear(36, 8)
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 10)

    def forward(self, image, tokens):
        x = self.proj(self.flat(self.pool(self.act(self.bn(self.conv(image))))))
        x = torch.add(self.embedding(tokens), x.unsqueeze(1))
        for block in self.blocks:
            x = block(x)
        return self.head(x.sum(1))


torch.manual_seed(0)
net, loss_of = TwiceWritten(), nn.CrossEntropyLoss()
np.savez(WEIGHTS, **{name: parameter.detach().numpy() for name, parameter in net.named_parameters()})
draw = np.random.RandomState(0)
image = torch.from_numpy(draw.randn(3, 1, 8, 8).astype(np.float32))
tokens, labels = torch.from_numpy(draw.randint(0, 11, (3, 5))), torch.from_numpy(draw.randint(0, 10, 3))
debugger = PrecisionDebugger(dump_path=OUT, level="mix", task="statistics")
for _ in range(2):
    debugger.start(net)
    loss_of(net(image, tokens), labels).backward()
    debugger.stop()
    debugger.step()
    net.zero_grad()

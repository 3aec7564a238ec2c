"""Captures and exports small nets: exported.py --config CONFIG OUT. Writes dynamo.onnx, script.onnx, x.npy, and of
step 1, whose normalizations the exporter folds, folded.onnx and image.npy.
"""

import argparse
import pathlib

import numpy
import torch
from msprobe.pytorch import PrecisionDebugger


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.grow = torch.nn.Linear(8, 16)
        self.act = torch.nn.GELU()
        self.shrink = torch.nn.Linear(16, 8)

    def forward(self, hidden):
        return hidden + self.shrink(self.act(self.grow(self.norm(hidden))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(8, 24)
        self.layers = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(24, 4)

    def forward(self, hidden):
        query, key, value = self.mix(hidden).chunk(3, -1)
        hidden = hidden + torch.softmax(query @ key.transpose(-1, -2), -1) @ value
        for layer in self.layers:
            hidden = layer(hidden)
        # The same operator twice, on the same input: names and order alone cannot tell them apart.
        scores = self.head(torch.cat([hidden, torch.tanh(hidden), torch.tanh(hidden.flip(-1))], -1))
        return torch.softmax(scores, -1)


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.conv2, self.bn2 = torch.nn.Conv2d(4, 4, 3), torch.nn.BatchNorm2d(4)

    def forward(self, image):
        return torch.tanh(self.bn2(self.conv2(torch.tanh(self.bn1(self.conv1(image))))))


parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("out", type=pathlib.Path)
given = parser.parse_args()
torch.manual_seed(0)
net, x = Net().eval(), torch.randn(2, 3, 8)
debugger = PrecisionDebugger(given.config)
debugger.start(net)
with torch.no_grad():
    net(x)
debugger.stop()
debugger.step()
folded, image = Convolutions(), torch.randn(2, 3, 8, 8)
folded(image)  # statistics of the normalizations
folded.eval()
debugger.start(folded)
with torch.no_grad():
    folded(image)
debugger.stop()
debugger.step()
given.out.mkdir()
numpy.save(given.out / "x.npy", x.numpy())
numpy.save(given.out / "image.npy", image.numpy())
torch.onnx.export(folded, (image,), given.out / "folded.onnx", dynamo=False, input_names=["image"])
for kind in ("dynamo", "script"):
    torch.onnx.export(
        net, (x,), given.out / f"{kind}.onnx", dynamo=kind == "dynamo", external_data=False, input_names=["x"]
    )
debugger.wait()

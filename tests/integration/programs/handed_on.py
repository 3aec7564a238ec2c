"""python handed_on.py CONFIG: a step in which tensors are handed on and changed, and one that trains, both replayed and
captured by CONFIG.

Prints JSON: the checksums that its calls were really given, by call, and the bytes that each capture read.
"""

import json
import sys
import zlib

import torch
from msprobe.pytorch import PrecisionDebugger

torch.set_num_threads(1)
library = torch.library.Library("handed", "DEF")
library.define("write(Tensor x) -> Tensor")  # it does not say that it writes to what it is given
library.impl("write", lambda x: x.numpy().__setitem__(slice(None), 3) or x.clone(), "CPU")

net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
given, read = {}, []


def crc(tensor):
    return f"{zlib.crc32(tensor.detach().numpy().tobytes()):08x}"


@torch.no_grad()
def step(x):
    y = net(x)
    given["Torch.exp.0.forward"] = crc(y)
    torch.exp(y)
    y.numpy()[:] += 1
    given["Torch.exp.1.forward"] = crc(y)
    torch.exp(y)
    y.data.mul_(0.5)
    given["Torch.exp.2.forward"] = crc(y)
    torch.exp(y)
    torch.ops.handed.write(y)
    given["Torch.exp.3.forward"] = crc(y)
    torch.exp(y)
    torch.exp(y.t())
    given["Torch.exp.4.forward"] = crc(y.t().contiguous())
    read.append(debugger._the()._agent.counters()["tensor_bytes_read"])


def train(x):
    net.zero_grad()
    net(x.view(4, 16, 64)).square().mean().backward()
    read.append(debugger._the()._agent.counters()["tensor_bytes_read"])


debugger = PrecisionDebugger(config_path=sys.argv[1])
batch = torch.randn(64, 64)
for each in (step, train):
    debugger.replay(each, batch, model=net)
    debugger.start(net)
    each(batch)
    debugger.stop()
    debugger.step()
debugger.wait()
print(json.dumps({"given": given, "read": read}))

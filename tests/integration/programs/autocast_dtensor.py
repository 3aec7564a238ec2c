"""A step under autocast and on a DTensor, without capture and with it; prints whether results have the same bits."""

import sys

import torch
import torch.distributed as dist
from msprobe.pytorch import PrecisionDebugger
from say import say
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
given = torch.linspace(-1, 1, 8).reshape(2, 4)
whole = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])


def step():
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = torch.matmul(model(given), given.t())
    made.float().sum().backward()
    doubled = torch.add(whole, whole)
    return [made.detach(), *(parameter.grad.clone() for parameter in model.parameters()), doubled.full_tensor()]


plain = step()
debugger = PrecisionDebugger(config_path=sys.argv[1])
debugger.start(model)
captured = step()
debugger.stop()
debugger.step()
say("SAME", all(map(torch.equal, plain, captured)))
dist.destroy_process_group()

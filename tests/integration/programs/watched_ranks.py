"""Trains under DDP or FSDP2 with msprobe.watch: watched_ranks.py CONFIG ddp|fsdp, with RANK, ... as torchrun sets them.

Prints the norm of the first weight, whole, behind each step.
"""

import sys

import msprobe
import torch
import torch.distributed as dist
from say import say


def main():
    torch.set_num_threads(1)
    config, kind = sys.argv[1:]
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    msprobe.watch(model, optimizer, config_path=config, communication=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(4, 8, generator=generator)).square().mean().backward()
        dist.all_reduce(torch.ones(6))
        optimizer.step()
        weight = next(iter(model.parameters())).detach()
        whole = weight.full_tensor() if kind == "fsdp" else weight
        say("norm", whole.norm().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains with msprobe.watch: watched_ranks.py CONFIG ddp|fsdp|zero, with RANK, ... as torchrun sets them; or
watched_ranks.py CONFIG alone: the same training in one process, with the data of two ranks.

Prints the norm of the first weight, whole, behind each step.
"""

import sys

import msprobe
import torch
import torch.distributed as dist
from say import say

STEPS, EXPLODES = 3, 2


def main():
    torch.set_num_threads(1)
    config, kind = sys.argv[1:]
    if kind != "alone":
        dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 33), torch.nn.Tanh(), torch.nn.Linear(33, 1))
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    elif kind == "zero":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    if kind == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    rank_id = 0 if kind == "alone" else None
    msprobe.watch(model, optimizer, config_path=config, rank_id=rank_id)
    ranks = (0, 1) if kind == "alone" else (dist.get_rank(),)
    generators = [torch.Generator().manual_seed(rank) for rank in ranks]
    for step in range(STEPS):
        optimizer.zero_grad()
        rows = torch.cat([torch.rand(4, 8, generator=each) for each in generators])
        scale = 1e6 if step == EXPLODES else 1.0
        (model(rows).square().mean() * scale).backward()
        if kind == "ddp":
            dist.all_reduce(torch.ones(6))
        optimizer.step()
        weight = next(iter(model.parameters())).detach()
        whole = weight.full_tensor() if kind == "fsdp" else weight
        say("norm", whole.norm().item())
    if kind != "alone":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

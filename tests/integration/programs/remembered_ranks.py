"""Trains and evaluates under DDP or FSDP2 with fused AdamW, changing weights by collectives in between.

remembered_ranks.py CONFIG ddp|fsdp, with RANK, WORLD_SIZE and MASTER_* as torchrun sets them.
"""

import sys

import torch
import torch.distributed as dist
from say import say


def main() -> None:
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    config, kind = sys.argv[1:]
    debugger = PrecisionDebugger(config_path=config)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1234)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.BatchNorm1d(512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    )
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    x = torch.rand(8, 64, generator=torch.Generator().manual_seed(rank))

    def capture(train: bool) -> None:
        model.train(train)
        debugger.start(model=model)
        if train:
            model(x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            with torch.no_grad():
                model(x)
        debugger.stop()
        debugger.step()

    for _ in range(2):
        capture(train=True)
        capture(train=False)
        capture(train=False)
        capture(train=False)
        for parameter in model.parameters():
            local = parameter.data if kind == "ddp" else parameter.data.to_local()
            dist.all_reduce(local)
        capture(train=False)
        capture(train=False)
        for parameter in model.parameters():
            local = parameter.data if kind == "ddp" else parameter.data.to_local()
            local[:1] = rank  # one row, or none
            dist.broadcast(local, src=1)
        capture(train=False)
    say("RECALLED", debugger._agent.counters()["statistics_recalled"])
    assert debugger._agent.counters()["statistics_wrong"] == 0
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

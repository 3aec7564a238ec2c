"""Training steps of two ranks under DistributedDataParallel with several buckets, and collectives by hand after them.

edges_of_ranks.py CONFIG LOG, with RANK, WORLD_SIZE and MASTER_* as torchrun sets them. LOG.rank{N} gets, by step, what
edges_of_models.py logs, and the memory of every gradient after its backward pass.
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist
from edges_of_models import Log
from say import say

BUCKETS_MB = 0.01  # each layer fills one


def layers():
    return torch.nn.Sequential(
        torch.nn.Linear(24, 96),
        torch.nn.GELU(),
        torch.nn.Linear(96, 96),
        torch.nn.Tanh(),
        torch.nn.Linear(96, 48),
    )


def by_hand(x):
    """Each kind of collective, and a call that takes what it gave."""
    total = torch.exp(x)
    dist.all_reduce(total)
    torch.sin(total)
    pieces = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, x)
    torch.cos(pieces[1])
    later = torch.tanh(x)
    dist.all_reduce(later, async_op=True).wait()
    torch.sqrt(later.abs())
    sent = torch.square(x)
    dist.broadcast(sent, src=0)
    torch.erf(sent)


def main():
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    config, out = sys.argv[1:]
    debugger = PrecisionDebugger(config_path=config)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logs = []
    for views in (False, True):
        torch.manual_seed(1234)
        model = torch.nn.parallel.DistributedDataParallel(
            layers(), bucket_cap_mb=BUCKETS_MB, gradient_as_bucket_view=views
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        for captured in (False, False, True):  # the reducer builds its buckets anew after the first
            x = torch.randn(4, 24, generator=torch.Generator().manual_seed(rank))
            log = Log()
            if captured:
                debugger.start(model=model)
            with log:
                model(x).square().mean().backward()
                gradients = {name: log.shown(each.grad) for name, each in model.named_parameters()}
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
                optimizer.step()
                by_hand(x)
            optimizer.zero_grad(set_to_none=not views)
            if captured:
                debugger.stop()
                debugger.step()
                logs.append({"calls": log.calls, "gradients": gradients})
            log.held.clear()
    pathlib.Path(f"{out}.rank{rank}").write_text(json.dumps(logs))
    dist.destroy_process_group()
    say("DONE", rank)


if __name__ == "__main__":
    main()

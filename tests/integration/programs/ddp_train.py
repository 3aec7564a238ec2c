"""Two steps of DistributedDataParallel under gloo, with RANK, WORLD_SIZE and MASTER_* as torchrun sets them.

config.json [RANK]: between the steps, one number of that rank's first weight changes a little.
"""

import sys

import torch
import torch.distributed
from say import say


def main():
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(1234)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        if step == 1 and sys.argv[2:] == [str(rank)]:
            with torch.no_grad():
                model.module[0].weight[3, 5] *= 1.0001
        x = torch.full((2, 8), float(1 + rank + 10 * step))
        debugger.start(model=model)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        torch.distributed.all_reduce(total)
        debugger.stop()
        debugger.step()
    torch.distributed.destroy_process_group()
    say("TRAINED", rank, total.item())


if __name__ == "__main__":
    main()

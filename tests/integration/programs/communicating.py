"""Four ranks that talk: communicating.py CONFIG, with RANK, ... as torchrun sets them.

Step 0 is right. In step 1 rank 3 leaves out an all_reduce and makes one more behind; in step 2 it takes the maximum
where the others sum. In step 3 it waits for a message that rank 2 never sends, while the others wait for it: that ends
with the program's death.
"""

import sys

import torch
import torch.distributed as dist
from say import say


def right(rank, pair):
    dist.all_reduce(torch.ones(4))
    work = dist.all_reduce(torch.ones(2, 3), group=pair, async_op=True)
    work.wait()
    dist.broadcast(torch.ones(3), src=1)
    parts = [torch.zeros(2) for _ in range(4)]
    dist.all_gather(parts, torch.ones(2))
    dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(8))
    if rank == 0:
        dist.send(torch.ones(5), dst=3, tag=7)
    if rank == 3:
        dist.recv(torch.zeros(5), src=0, tag=7)
    neighbour, before = (rank + 1) % 4, (rank - 1) % 4
    ring = [dist.P2POp(dist.isend, torch.ones(2), neighbour), dist.P2POp(dist.irecv, torch.zeros(2), before)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()


def missed(rank):
    if rank != 3:
        dist.all_reduce(torch.ones(4))  # missed
    dist.all_reduce(torch.ones(4))  # everybody
    if rank == 3:
        dist.all_reduce(torch.ones(4))  # one more


def other_reduction(rank):
    dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX if rank == 3 else dist.ReduceOp.SUM)


def hang(rank):
    dist.broadcast(torch.ones(3), src=1)
    say("HANGS")
    if rank == 3:
        dist.recv(torch.zeros(2), src=2)  # never sent
    dist.all_reduce(torch.ones(6))


def main():
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    debugger = PrecisionDebugger(config_path=sys.argv[1])
    for step in (lambda: right(rank, pairs[rank % 2]), lambda: missed(rank), lambda: other_reduction(rank)):
        debugger.start()
        step()
        debugger.stop()
        debugger.step()
    debugger.start()
    hang(rank)


if __name__ == "__main__":
    main()

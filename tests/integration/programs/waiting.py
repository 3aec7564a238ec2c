"""Two ranks under gloo with collectives that are waited for, and one that is not. One argument: the configuration."""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def work(rank, config, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=config)
    wait = vars(dist.Work)["wait"]
    debugger.start()
    value = torch.full((4,), float(rank + 1))
    dist.all_reduce(value, async_op=True).wait()
    later = dist.all_reduce(torch.ones(2), async_op=True)
    other = 1 - rank
    operation = (
        dist.P2POp(dist.irecv, torch.zeros(3), other)
        if rank == 0
        else dist.P2POp(dist.isend, torch.full((3,), 7.0), other)
    )
    for pending in dist.batch_isend_irecv([operation]):
        pending.wait()
    pending = dist.irecv(torch.zeros(2), other) if rank == 0 else dist.isend(torch.full((2,), 9.0), other)
    pending.wait()
    debugger.stop()
    debugger.step()
    later.wait()
    assert vars(dist.Work)["wait"] is wait, "put back"
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (sys.argv[1], port), 2)

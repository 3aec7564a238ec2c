"""One rank of a sharded model, of a pipeline, with a loader of forked workers and eight threads: RANK of WORLD_SIZE.

Two steps. In each: a training step of a model under FSDP2; odd ranks get from the even one below them what it has
computed, and send back the gradient; a DataLoader with two workers; eight threads that call modules of their own.
"""

import sys
import threading

import torch
import torch.distributed as dist
from say import say
from torch.distributed.fsdp import fully_shard

THREADS, CALLS = 8, 25


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.mul(torch.tensor(float(index)), index)


class Stage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.sigmoid(self.linear(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sharded = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
        self.stage = Stage()
        self.thread = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(THREADS))


def train_sharded(model, step):
    x = torch.full((2, 8), float(dist.get_rank() + 1 + 10 * step))
    model.sharded(x).sum().backward()


def run_pipeline(model):
    rank = dist.get_rank()
    if rank % 2 == 0:
        hidden = model.stage(torch.full((2, 4), float(rank + 1)))
        dist.send(hidden.detach(), rank + 1)
        gradient = torch.empty(2, 4)
        dist.recv(gradient, rank + 1)
        hidden.backward(gradient)
    else:
        received = torch.empty(2, 4)
        dist.recv(received, rank - 1)
        received.requires_grad_()
        model.stage(received).sum().backward()
        dist.send(received.grad, rank - 1)


def load():
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    return [batch.tolist() for batch in loader]


def call_from_threads(model):
    barrier = threading.Barrier(THREADS)

    def work(number):
        barrier.wait()
        with torch.no_grad():
            for call in range(CALLS):
                model.thread[number](torch.full((1, 2), float(number * CALLS + call)))

    threads = [threading.Thread(target=work, args=(number,), name=f"worker {number}") for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1234)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    model = Model()
    for layer in model.sharded:
        fully_shard(layer)
    fully_shard(model.sharded)
    for step in range(2):
        model.zero_grad()
        debugger.start(model=model)
        train_sharded(model, step)
        run_pipeline(model)
        say("LOADED", load())
        call_from_threads(model)
        debugger.stop()
        debugger.step()
        dist.barrier()
    dist.destroy_process_group()
    say("ENDED")


if __name__ == "__main__":
    main()

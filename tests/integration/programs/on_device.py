"""Trains a net on --device cpu, npu or cuda and prints, as JSON, what it computed and what the device was asked for.

--hold: npu begins no kernel between start() and stop(): whoever waits for it there waits for good; cuda raises where
somebody waits.
--stream: each step runs on a stream of its own. --threads N: N models in as many threads, of which each has its own
stream. --agent off: msprobe is not imported.
"""

import argparse
import atexit
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import signal
import sys
import threading

import nets
import npu
import torch
from torch.autograd import profiler


def digest(tensors):
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


class Net(torch.nn.Module):
    """Activations of 512 KiB, of which statistics are taken on the device, and small tensors, which are copied."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 64)
        self.wide = torch.nn.Linear(64, 512)
        self.norm = torch.nn.LayerNorm(512)
        self.narrow = torch.nn.Linear(512, 8)

    def forward(self, tokens):
        hidden = torch.nn.functional.gelu(self.wide(self.embedding(tokens)))
        return self.narrow(self.norm(hidden) + hidden.mean(dim=-1, keepdim=True)).mean(dim=1)


class Training:
    def __init__(self, net, device):
        nets.seed()
        self._qwen2 = net == "qwen2"
        if self._qwen2:
            self.model = nets.qwen2(attention="eager").to(device)
        else:
            self.model = Net().to(device)
        # foreach=False: the same functions are called on either device.
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, foreach=False)
        self._device = device

    def batch(self, step):
        generator = torch.Generator().manual_seed(100 + step)
        if self._qwen2:
            return nets.tokens(step, batch=2).to(self._device), None
        tokens = torch.randint(0, 32, (16, 16), generator=generator)
        return tokens.to(self._device), torch.randint(0, 8, (16,), generator=generator).to(self._device)

    def step(self, tokens, labels):
        self._optimizer.zero_grad()
        if self._qwen2:
            loss = self.model(input_ids=tokens, labels=tokens).loss
        else:
            loss = torch.nn.functional.cross_entropy(self.model(tokens), labels)
        loss.backward()
        self._optimizer.step()
        return loss

    def state(self):
        return digest([*self.model.parameters(), *(parameter.grad for parameter in self.model.parameters())])


class Agent:
    def __init__(self, options):
        self._debugger = None
        if options.agent == "on":
            from msprobe.pytorch import PrecisionDebugger

            self._debugger = PrecisionDebugger(config_path=options.config)

    def start(self, model):
        if self._debugger:
            self._debugger.start(model=model)

    def stop(self):
        if self._debugger:
            self._debugger.stop()

    def step(self):
        if self._debugger:
            self._debugger.step()

    def wait(self):
        assert self._debugger.wait()


def operators_of(profile):
    """Names of the operators that threads of the program ran, in order."""
    events = [event for event in profile.function_events if event.name.startswith("aten::")]
    return [event.name for event in sorted(events, key=lambda event: event.time_range.start)]


def on_own_stream(options, body):
    """Runs body on a stream of its own where that was asked for, behind what the default stream was given."""
    if not options.stream and options.threads == 1:
        return body()
    stream = torch.Stream(device="npu")
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        result = body()
        event = stream.record_event()
    torch.accelerator.current_stream().wait_event(event)
    return result


@contextlib.contextmanager
def nobody_may_wait(device):
    if device.type == "npu":
        with npu.Held():
            yield
    else:
        torch.cuda.set_sync_debug_mode("error")
        yield
        torch.cuda.set_sync_debug_mode("default")


def train(options, device):
    trainings = [Training(options.net, device) for _ in range(options.threads)]
    agent = Agent(options)
    found = {"losses": [], "states": [], "counters": [], "operators": []}
    for step in range(options.steps):
        batches = [training.batch(step) for training in trainings]
        losses = [None] * options.threads

        def work(index, batches=batches, losses=losses):
            losses[index] = on_own_stream(options, lambda: trainings[index].step(*batches[index]))

        if device.type == "npu":
            torch.accelerator.synchronize()
            npu.reset()
        with nobody_may_wait(device) if options.hold else contextlib.nullcontext():
            agent.start(trainings[0].model)
            if options.profile:
                with profiler.profile(use_kineto=True) as profile:
                    work(0)
                found["operators"].append(operators_of(profile))
            elif options.threads == 1:
                work(0)
            else:
                threads = [threading.Thread(target=work, args=(index,)) for index in range(options.threads)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            agent.stop()
            if step == options.killed_in:
                os.kill(os.getpid(), signal.SIGKILL)
            if device.type == "npu":
                found["counters"].append(dataclasses.asdict(npu.counters()))
        agent.step()
        if options.killed_in == step + 1:
            agent.wait()
        found["losses"].append([loss.item().hex() for loss in losses])
        found["states"].append([training.state() for training in trainings])
    return found


def leave():
    """Ends the process as its end would, but for taking the interpreter down.

    Autograd's thread of a device drops what the last backward pass held whenever it comes to it. Where it asks the
    interpreter to drop a Python object of that while the interpreter goes down, Python 3.11 ends the thread, and torch
    with it the process: "terminate called without an active exception". No agent is needed for that.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--agent", choices=("off", "on"), default="on")
    parser.add_argument("--device", choices=("cpu", "npu", "cuda"), default="npu")
    parser.add_argument("--net", choices=("mlp", "qwen2"), default="mlp")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print the operators that ran, too")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument(
        "--killed-in",
        type=int,
        help="kill -9 of itself at the end of this step, while the device is held; what came before has arrived",
    )
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    nets.seed()
    device = npu.load() if options.device == "npu" else torch.device(options.device)
    options.out.write_text(json.dumps(train(options, device)))
    if device.type != "cpu":
        leave()


if __name__ == "__main__":
    main()

"""Runs a model under AclGraphDumper, eager or compiled, and prints, as JSON, what it computed and what was traced.

--dumper off: msprobe is not imported. --unroll N: the model is a loop over one module, of N calls. --skip-in N: in step
N nothing runs. --off-in N: step(dump=False) ends it. --device npu: the backend of tests/npu_backend, held while the
model runs, so that whoever waits for it there waits for good.

--serve: one JSON request a line, {"arguments": [...], "log": PATH}, and a fork for each, which has what is slow to
import (not msprobe); answers {"code": exit status}.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import time

import nets
import npu
import torch
from say import say


class Loop(torch.nn.Module):
    """One module called several times, an argument that is overwritten, and several results."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls
        self.layer = torch.nn.Linear(16, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        for _ in range(self.calls):
            x = self.norm(torch.nn.functional.gelu(self.layer(x)) + x)
        return x


class Wide(torch.nn.Module):
    """Activations of 512 KiB, of which a device takes statistics by itself, and small tensors, which it copies."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 64)
        self.wide = torch.nn.Linear(64, 512)
        self.norm = torch.nn.LayerNorm(512)
        self.narrow = torch.nn.Linear(512, 8)

    def forward(self, tokens):
        return self.narrow(self.norm(torch.nn.functional.gelu(self.wide(self.embedding(tokens)))))


class Either(torch.nn.Module):
    """Two parts, each a graph of its own, of which a step runs one."""

    def __init__(self):
        super().__init__()
        self.even, self.odd = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)


def made(options, device):
    nets.seed()
    if options.net == "either":
        return Either(), lambda step: torch.ones(4, 16) * step
    if options.net == "qwen2":
        # attention="eager": for sdpa the model makes a mask only while it is traced.
        model = nets.qwen2(train=False, attention="eager").to(device)
        return model, lambda step: nets.tokens(step, batch=2).to(device)
    if options.net == "wide":
        numbers = torch.Generator().manual_seed(5)
        return Wide().to(device), lambda step: torch.randint(0, 32, (16, 16), generator=numbers).to(device)
    return Loop(options.unroll).to(device), lambda step: torch.randn(
        (4, 16), generator=torch.Generator().manual_seed(step)
    ).to(device)


def digest(tensor):
    return hashlib.sha256(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--dumper", choices=("off", "on"), default="on")
    parser.add_argument("--backend", choices=("eager", "aot_eager", "inductor"), default="aot_eager")
    parser.add_argument("--net", choices=("qwen2", "wide", "loop", "either"), default="loop")
    parser.add_argument("--device", choices=("cpu", "npu"), default="cpu")
    parser.add_argument("--unroll", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--passes", type=int, default=1, help="in each step")
    parser.add_argument("--skip-in", type=int)
    parser.add_argument("--off-in", type=int)
    parser.add_argument("--save", type=pathlib.Path, help="acl_save of the result goes there")
    parser.add_argument("--switch", type=pathlib.Path, help="the configuration after step 0")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    return parser.parse_args(arguments)


def run_model(options):
    device = npu.load() if options.device == "npu" else torch.device("cpu")
    model, batch = made(options, device)
    dumper = None
    if options.dumper == "on":
        from msprobe.pytorch import AclGraphDumper

        dumper = AclGraphDumper(options.config)
        assert not hasattr(dumper, "stop"), "a runner would stop it between steps"
        dumper.start(model)
        dumper.start(model)  # a second time has no effect
    run = model
    if options.save is not None:
        from msprobe.pytorch import acl_save

        def run(tokens):
            return acl_save(model(tokens), str(options.save))

    if options.backend != "eager":
        torch._dynamo.utils.counters.clear()
        if options.net == "either":
            parts = [torch.compile(part, backend=options.backend, fullgraph=True) for part in (model.even, model.odd)]

            def run(x):
                return parts[int(x[0, 0]) % 2](x)

            for part in range(2):  # both are traced before the first step
                run(batch(part))
            if dumper is not None:
                dumper.step(dump=False)
        else:
            run = torch.compile(run, backend=options.backend, fullgraph=True, dynamic=False)
    found = {"outputs": [], "counters": []}
    with torch.no_grad():
        for step in range(options.steps):
            inputs = [batch(step) for _ in range(options.passes)]
            outputs = []
            if device.type == "npu":
                torch.accelerator.synchronize()
                npu.reset()
            with npu.Held() if device.type == "npu" else contextlib.nullcontext():
                for each in inputs if step != options.skip_in else []:
                    result = run(each)
                    outputs.append(result.logits if hasattr(result, "logits") else result)
                if device.type == "npu":
                    found["counters"].append(dataclasses.asdict(npu.counters()))
            if dumper is not None:
                dumper.step(dump=step != options.off_in)
            if device.type == "npu":
                found["counters"].append(dataclasses.asdict(npu.counters()))
            found["outputs"].append([digest(output) for output in outputs])
            if options.switch and step == 0:
                pathlib.Path(options.config).write_text(options.switch.read_text())
                time.sleep(0.6)  # the file is looked at every half second, where a step ends
                dumper.step(dump=False)
    if options.backend != "eager":
        found["graph_breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
        found["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    options.out.write_text(json.dumps(found))


def serve():
    nets.qwen2(train=False)
    torch.set_num_threads(1)
    torch.compile(torch.nn.Linear(2, 2), backend="aot_eager")(torch.ones(1, 2))
    torch._dynamo.reset()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            with pathlib.Path(request["log"]).open("wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            run_model(parsed(request["arguments"]))
            return
        _, status = os.waitpid(child, 0)
        say(json.dumps({"code": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else run_model(parsed(sys.argv[1:]))

#!/usr/bin/env python3
"""The cost of probes in a compiled model: compile and run time over those of the same model without them.

graph.py              a transformer of four blocks under inductor, every module probed
graph.py --pairs 100  more pairs of runs of both models, in turn
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

LIMIT = 1.5  # run time beside the model without probes


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.act = torch.nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attention = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(1000, width)
        self.blocks = torch.nn.ModuleList([Block(width) for _ in range(4)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def seconds(run: object, tokens: torch.Tensor) -> tuple[float, float]:
    """Wall and processor time of one run."""
    wall, processor = time.perf_counter(), time.process_time()
    run(tokens)  # type: ignore[operator]
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--task", choices=("statistics", "tensor"), default="statistics")
    options = parser.parse_args()
    from msprobe.pytorch import AclGraphDumper

    torch.set_num_threads(1)
    tokens = torch.randint(0, 1000, (8, 128))
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        config = Path(scratch) / "config.json"
        config.write_text(json.dumps({"task": options.task, "level": "L0", "dump_path": f"{scratch}/dump"}))
        torch.compile(torch.nn.Linear(4, 4))(torch.ones(4, 4))  # the toolchain is warm
        plain = Transformer().eval()
        probed = copy.deepcopy(plain)
        dumper = AclGraphDumper(config)
        dumper.start(probed)
        compiled, compile_seconds = [], []
        for model in (plain, probed):
            compiled.append(torch.compile(model, fullgraph=True))
            compile_seconds.append(seconds(compiled[-1], tokens))
        results = [run(tokens) for run in compiled]
        dumper.step(dump=False)
        times: list[list[tuple[float, float]]] = [[], []]
        step_times = []
        for _ in range(options.pairs):
            for index, run in enumerate(compiled):
                times[index].append(seconds(run, tokens))
            began = time.perf_counter()
            dumper.step()
            step_times.append(time.perf_counter() - began)
        dumper.wait(120)
        probes = len(dumper._plan.owners) if dumper._plan is not None else 0
    wall, processor = (
        statistics.median(on[kind] / off[kind] for off, on in zip(times[0], times[1], strict=True)) for kind in (0, 1)
    )
    off_ms = statistics.median(off[0] for off in times[0]) * 1e3
    print(f"{probes} probes; compile {compile_seconds[0][0]:.1f} s without, {compile_seconds[1][0]:.1f} s with")
    print(f"run {off_ms:.1f} ms without; with: wall x{wall:.2f}, processor x{processor:.2f} (median of pairs)")
    difference = (results[0] - results[1]).abs().max().item()
    print(f"results differ by at most {difference:.1e}" if difference else "results are the same bits")
    print(f"step() {statistics.median(step_times) * 1e3:.2f} ms")
    if processor > LIMIT:
        raise SystemExit(f"graph: over the limit of x{LIMIT}")


if __name__ == "__main__":
    main()

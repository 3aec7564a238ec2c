#!/usr/bin/env python3
"""What task check costs a training step with its default budget, 2 % of the step, and how soon verdicts come.

live_check.py             40 blocks of 5 steps, with and without by turns; one thread of torch, one worker beside it
live_check.py --write     keeps the figures in docs/figures/live_check.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures

RATIO = 1.03  # of a step
SECONDS = 2.0  # from a call to its verdict
STEPS = 5  # a block

PROGRAM = f"""
import sys, time, torch
from msprobe.pytorch import PrecisionDebugger
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(
    *[torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0) for _ in range(4)])
optimizer = torch.optim.AdamW(net.parameters())
debugger = PrecisionDebugger(config_path=sys.argv[1])
x = torch.randn(16, 64, 256)
for block in range(int(sys.argv[2])):
    for step in range({STEPS}):
        begun, wall = time.perf_counter(), time.time()
        if block % 2:
            debugger.start(net)
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        if block % 2:
            debugger.stop()
            debugger.step()
        print("step", block, (block // 2) * {STEPS} + step, wall, time.perf_counter() - begun, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch, contextlib.ExitStack() as stack:
        result = measured(Path(scratch), stack, options.blocks)
    for name, value in result.items():
        print(f"{name}: {value:.4g}")
    if result["step_ratio"] > RATIO:
        raise SystemExit(f"live check: a step takes {result['step_ratio']:.3f} of one without; at most {RATIO}")
    if result["verdict_s_p95"] > SECONDS:
        raise SystemExit(f"live check: a verdict takes {result['verdict_s_p95']:.2f} s; at most {SECONDS}")
    if options.write:
        figures.keep("live_check", {"default budget": result})


def measured(scratch: Path, stack: contextlib.ExitStack, blocks: int) -> dict[str, float]:
    from msprobe_client import Client
    from msprobe_client.errors import NotFound

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    beside = Path(sys.executable).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def background(*words: str) -> None:
        process = subprocess.Popen([str(beside / words[0]), *words[1:]], env=environment, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.send_signal, signal.SIGTERM)

    background("msprobe-server", f"--listen={address}", f"--data_dir={scratch}/data")
    background("msprobe-client", "--server", address, "worker", "--kinds", "check")
    config = scratch / "config.json"
    document = {"task": "check", "level": "L1", "dump_path": f"{scratch}/dump", "server": address, "run": "bench"}
    config.write_text(json.dumps(document))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(config), str(blocks)], stdout=subprocess.PIPE, text=True, env=environment
    )
    stack.callback(program.wait)
    stack.callback(program.kill)
    lines = iter(program.stdout or ())
    began: dict[int, float] = {}  # of a captured step
    seconds: dict[bool, list[float]] = {False: [], True: []}
    verdicts: list[float] = []
    wrong = 0
    with Client(address) as client:
        seen = 0
        for line in lines:
            if not line.startswith("step "):  # the debugger's own
                continue
            block, step, wall, took = (float(word) for word in line.split()[1:])
            if block >= 4:  # the first are of first shapes, and of warm caches
                seconds[bool(block % 2)].append(took)
            if block % 2:
                began[int(step)] = wall
            found: list[Any] = []
            with contextlib.suppress(NotFound):
                found = client.jobs.of_run("bench")
            for result in client.jobs.results(found[0].job, after=seen) if found else ():
                seen += 1
                wrong += result.verdict in ("fail", "error")
                verdicts.append(time.time() - began[int(result.name.split("/")[0].removeprefix("step"))])
        if wrong:
            raise SystemExit(f"live check: {wrong} of {seen} calls of a right program are wrong")
    off, on = (statistics.median(seconds[way]) for way in (False, True))
    verdicts.sort()
    return {
        "step_ms": off * 1000,
        "step_ratio": on / off,
        "step_ratio_mean": statistics.mean(seconds[True]) / statistics.mean(seconds[False]),
        "calls": len(verdicts),
        "verdict_s_p50": verdicts[len(verdicts) // 2],
        "verdict_s_p95": verdicts[int(len(verdicts) * 0.95)],
    }


if __name__ == "__main__":
    main()

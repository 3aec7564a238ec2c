#!/usr/bin/env python3
"""What task check costs a training step with its default budget, 2 % of the step, and how soon verdicts come.

live_check.py             100 steps with a check and 100 without by turns, so that what server and worker take of
                          memory and caches falls on both; one thread of torch, one worker. First with a core of its
                          own for the job, and another for server and worker, as a job has it whose cores are not the
                          workers'; then with all on the same cores. The limits are for the first
live_check.py --write     keeps the figures in docs/figures/live_check.json, and writes the table of docs/checking.md

Each ratio is the median over groups of 5 neighbours of each kind: of the time that passes; of that time without what
other threads had of the core (own_time.py), which has the limit; and of the processor time of the job's process, whose
other threads send.
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
STEPS = 5  # of each kind in a group

PROGRAM = f"""
import sys, time, torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
from own_time import own_seconds
from msprobe.pytorch import PrecisionDebugger
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(
    *[torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0) for _ in range(4)])
optimizer = torch.optim.AdamW(net.parameters())
debugger = PrecisionDebugger(config_path=sys.argv[1])
x = torch.randn(16, 64, 256)
for turn in range(int(sys.argv[2])):
    begun, wall, own, spent = time.perf_counter(), time.time(), own_seconds(), time.process_time()
    if turn % 2:
        debugger.start(net)
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
    if turn % 2:
        debugger.stop()
        debugger.step()
    print("step", turn % 2, turn // 2, wall, time.perf_counter() - begun,
          own_seconds() - own, time.process_time() - spent, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("live check: it needs two cores, one of them for the job alone")
    results = {}
    for name, job, others in (("a core of its own", cores[:1], cores[1:2]), ("shared cores", cores[:2], cores[:2])):
        with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch, contextlib.ExitStack() as stack:
            results[name] = measured(Path(scratch), stack, options.steps, job, others)
        print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in results[name].items()), flush=True)
    if options.write:
        write(figures.keep("live_check", results))
    alone = results["a core of its own"]
    missed = []
    if alone["own_ratio"] > RATIO:
        missed.append(f"a step takes {alone['own_ratio']:.3f} of one without; at most {RATIO}")
    if (seconds := alone["verdict_s_p95"]) > SECONDS:
        missed.append(f"a verdict takes {seconds:.2f} s; at most {SECONDS}")
    if missed:
        raise SystemExit(f"live check: {'; '.join(missed)}")


def write(kept: dict[str, Any]) -> None:
    rows = [
        f"| {name} | {row['own_ratio']:.3f} | {row['processor_ratio']:.3f} | {row['step_ratio']:.3f} | "
        f"{row['verdict_s_p50']:.1f} s | "
        f"{row['verdict_s_p95']:.1f} s |"
        for name, row in kept["results"].items()
    ]
    step = kept["results"]["a core of its own"]["step_ms"]
    figures.put_table(
        "checking.md",
        "live_check",
        "\n".join(
            [
                "| the job has | step alone | processor time of the job | step | verdict, median | 95 % |",
                "|---|---|---|---|---|---|",
                *rows,
                "",
                f"Of a step of {step:.0f} ms without a check, one thread, one worker; alone: without what other "
                "threads had of its core "
                f"({figures.measured_on(kept, 'live_check.py')}).",
            ]
        ),
    )


Costs = tuple[list[float], list[float]]  # of each step without a check, and with one


def step_figures(seconds: Costs, alone: Costs, processor: Costs) -> dict[str, float]:
    """Milliseconds of a plain step, and ratios of a captured one: by the time that passes, without other processes, and
    by processor time of all threads."""
    first = 2 * STEPS  # before it, shapes and caches are new

    def ratio(of: Costs) -> float:
        groups = (slice(at, at + STEPS) for at in range(first, len(of[1]) - STEPS + 1, STEPS))
        return statistics.median(sum(of[1][group]) / sum(of[0][group]) for group in groups)

    return {
        "step_ms": statistics.median(seconds[0][first:]) * 1000,
        "own_ratio": ratio(alone),
        "step_ratio": ratio(seconds),
        "processor_ratio": ratio(processor),
    }


def measured(
    scratch: Path, stack: contextlib.ExitStack, steps: int, job: list[int], others: list[int]
) -> dict[str, float]:
    from msprobe_client import Client
    from msprobe_client.errors import NotFound

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    beside = Path(sys.executable).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def background(*words: str) -> None:
        command = ["taskset", "-c", ",".join(map(str, others)), str(beside / words[0]), *words[1:]]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.send_signal, signal.SIGTERM)

    background("msprobe-server", f"--listen={address}", f"--data_dir={scratch}/data")
    background("msprobe-client", "--server", address, "worker", "--kinds", "check")
    config = scratch / "config.json"
    document = {"task": "check", "level": "L1", "dump_path": f"{scratch}/dump", "server": address, "run": "bench"}
    config.write_text(json.dumps(document))
    program = subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, job)), sys.executable, "-c", PROGRAM, str(config), str(2 * steps)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    stack.callback(program.wait)
    stack.callback(program.kill)
    lines = iter(program.stdout or ())
    began: dict[int, float] = {}  # of a captured step
    seconds: Costs = ([], [])
    alone: Costs = ([], [])  # without other threads
    processor: Costs = ([], [])
    verdicts: list[float] = []
    wrong = 0
    with Client(address) as client:
        seen = 0
        for line in lines:
            if not line.startswith("step "):  # the debugger's own
                continue
            kind, step, wall, took, own, spent = (float(word) for word in line.split()[1:])
            for costs, cost in ((seconds, took), (alone, own), (processor, spent)):
                costs[int(kind)].append(cost)
            if kind:
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
    verdicts.sort()
    return {
        **step_figures(seconds, alone, processor),
        "calls": len(verdicts),
        "verdict_s_p50": verdicts[len(verdicts) // 2],
        "verdict_s_p95": verdicts[int(len(verdicts) * 0.95)],
    }


if __name__ == "__main__":
    main()

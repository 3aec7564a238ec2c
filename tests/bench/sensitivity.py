#!/usr/bin/env python3
"""What it costs a training step that about one of its calls in a hundred goes to workers, which perturb it.

sensitivity.py            100 steps with and 100 without by turns; one thread of torch. The job has a core of its own;
                          server, worker and the command that makes the jobs have another
sensitivity.py --write    keeps the figures in docs/figures/sensitivity.json, and writes its table in docs/

The ratio is the median over groups of neighbours (live_check.py), of the time without what other processes had of the
core (own_time.py), and of the processor time of all of the job's threads, those of the agent too. The share is that of
the forward calls that were captured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures
from live_check import PROGRAM, Costs, step_figures

RATIO = 1.05  # of a step
SHARE = (1 / 200, 1 / 50)
BUDGET_MB = 4
BESIDE = Path(sys.executable).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--budget_mb", type=float, default=BUDGET_MB)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("sensitivity: it needs two cores, one of them for the job alone")
    with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch, contextlib.ExitStack() as stack:
        row = measured(Path(scratch), stack, options.steps, options.budget_mb, cores)
    print(", ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
    if options.write:
        write(figures.keep("sensitivity", row))
    missed = []
    if row["own_ratio"] > RATIO:
        missed.append(f"a step takes {row['own_ratio']:.3f} of one without; at most {RATIO}")
    if row["processor_ratio"] > RATIO:
        missed.append(
            f"a step takes {row['processor_ratio']:.3f} of the processor time of one without; at most {RATIO}"
        )
    if not SHARE[0] <= row["share"] <= SHARE[1]:
        missed.append(f"{row['share']:.4f} of the calls were captured; about one in a hundred was asked for")
    if not row["measured"]:
        missed.append("no worker measured a call while the job ran")
    if missed:
        raise SystemExit(f"sensitivity: {'; '.join(missed)}")


def write(kept: dict[str, Any]) -> None:
    row = kept["results"]
    ratios = [row["own_ratio"], row["processor_ratio"], row["step_ratio"]]
    cells = [f"1 in {1 / row['share']:.0f}", *(f"{each:.3f}" for each in ratios), f"{row['measured']:.0f}"]
    figures.put_table(
        "sensitivity.md",
        "sensitivity",
        "\n".join(
            [
                "| calls captured | step without other processes | processor time | step | rows measured meanwhile |",
                "|---|---|---|---|---|",
                f"| {' | '.join(cells)} |",
                "",
                f"Of a step of {row['step_ms']:.0f} ms without capture, one thread on a core of its own, one worker on "
                f"another ({figures.measured_on(kept, 'sensitivity.py')}).",
            ]
        ),
    )


def measured(
    scratch: Path, stack: contextlib.ExitStack, steps: int, budget_mb: float, cores: list[int]
) -> dict[str, float]:
    from msprobe_client import Client
    from msprobe_client.check.calls import Place, calls_of
    from msprobe_client.sensitivity.rows import RELATIVE_NOISE

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def background(core: int, *words: str, **more: Any) -> subprocess.Popen[str]:
        command = ["taskset", "-c", str(core), *words]
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, text=True, **more)

    server = [str(BESIDE / "msprobe-server"), f"--listen={address}", f"--data_dir={scratch}/data"]
    worker = [str(BESIDE / "msprobe-client"), "--server", address, "worker"]
    for words in (server, [*worker, "--kinds", "check", "--kinds", "sensitivity"]):
        process = background(cores[1], *words)
        stack.callback(process.wait)
        stack.callback(process.send_signal, signal.SIGTERM)

    def program(run: str, captured: int, **fields: Any) -> subprocess.Popen[str]:
        config = scratch / f"{run}.json"
        document = {"level": "L1", "dump_path": f"{scratch}/{run}", "server": address, "run": run, **fields}
        config.write_text(json.dumps(document))
        command = [sys.executable, "-c", PROGRAM, str(config), str(2 * captured)]
        process = background(cores[0], *command, stdout=subprocess.PIPE)
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process

    def places(client: Client, run: str) -> list[Place]:
        return [Place(run, each.step, each.rank) for each in client.steps(run)]

    with Client(address) as client:
        for _ in program("all", 1, task="structure").stdout or ():
            pass
        a_step = len(calls_of(client, places(client, "all")[-1]))
        check = {"sample": "identity", "budget_mb": budget_mb, "keep": "all"}
        seconds: Costs = ([], [])
        alone: Costs = ([], [])  # without other processes
        spent: Costs = ([], [])  # of processors, by all threads
        asking = None
        for line in program("bench", steps, task="check", check=check).stdout or ():
            if not line.startswith("step "):  # the debugger's own
                continue
            kind, number, _, took, own, processor = (float(word) for word in line.split()[1:])
            for costs, cost in ((seconds, took), (alone, own), (spent, processor)):
                costs[int(kind)].append(cost)
            if number >= steps // 4 and asking is None:
                words = ["sensitivity", "bench", "--engine", "queue", "--mode", RELATIVE_NOISE, "--format", "json"]
                command = [str(BESIDE / "msprobe-client"), "--server", address, *words]
                asking = background(cores[1], *command, stdout=subprocess.PIPE)
        assert asking is not None
        rows = json.loads(asking.communicate(timeout=120)[0])["rows"]
        captured = places(client, "bench")
        taken = sum(len(calls_of(client, place)) for place in captured)
    return {
        **step_figures(seconds, alone, spent),
        "calls_a_step": a_step,
        "share": taken / (steps * a_step),
        "measured": sum(row["verdict"] in ("stable", "sensitive") for row in rows),
    }


if __name__ == "__main__":
    main()

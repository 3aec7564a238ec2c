"""Measures the signs of gradients (task grad_probe) in times of a plain read, and the bytes that they take.

    .venv/bin/python tests/bench/signs.py

Of 64 MiB, more than the caches hold: signs alone, and signs with statistics in one pass, beside a sum over the same
bytes as fast as a core makes it; the best of twenty runs of each by time of the CPU, in turn. Of a model: what each
call of the optimizer waits for the debugger, beside the same read of all gradients, on one core; the median of the
steps. A row over its limit ends the script with 1. --write keeps the results in docs/figures/signs.json and
docs/monitoring.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import figures

REPOSITORY = Path(__file__).resolve().parents[2]
KERNELS = REPOSITORY / "build" / "benchmarks" / "stats_benchmark"
ROWS = {
    "float32": ("signs/fp32", "signs_and_statistics/fp32", "uncached_sum/fp32"),
    "bfloat16": ("signs/bf16", "signs_and_statistics/bf16", "uncached_sum/bf16"),
}
LIMIT_READS = 1.3  # of signs alone
STEPS = 12
HIDDEN = 2048

WORKER = """
import json, sys, time
import torch
from msprobe.pytorch.debugger import PrecisionDebugger, gradient_of

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear({hidden}, {hidden}) for _ in range(4)))
for parameter in model.parameters():
    parameter.grad = torch.randn_like(parameter)
debugger = PrecisionDebugger(sys.argv[1])
debugger.monitor(model)
seconds = []
for _ in range({steps}):
    for parameter in model.parameters():
        parameter.grad.neg_()
    begin = time.perf_counter()
    debugger._probe_gradients(gradient_of)
    seconds.append(time.perf_counter() - begin)
    debugger.wait(60)
print(json.dumps({{"seconds": seconds, "elements": sum(each.numel() for each in model.parameters())}}))
"""


def kernels() -> dict[str, dict[str, float]]:
    """Milliseconds of each benchmark, and its bytes a second."""
    done = subprocess.run(
        [
            KERNELS,
            "--benchmark_filter=^(signs|signs_and_statistics|uncached_sum)/(fp32|bf16)$",
            "--benchmark_repetitions=20",
            "--benchmark_enable_random_interleaving=true",
            "--benchmark_min_time=0.05",
            "--benchmark_format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    best: dict[str, dict[str, float]] = {}
    for one in json.loads(done.stdout)["benchmarks"]:
        if one["run_type"] != "iteration":
            continue
        known = best.get(one["run_name"])
        if known is None or one["cpu_time"] < known["ns"]:
            best[one["run_name"]] = {"ns": one["cpu_time"], "bytes_a_second": one["bytes_per_second"]}
    return best


def model(scratch: Path, bytes_a_second: float) -> dict[str, Any]:
    """What an optimizer's call waits, and what a run stores."""
    config = {"task": "grad_probe", "dump_path": str(scratch / "dump"), "reading_threads": 0}
    (scratch / "config.json").write_text(json.dumps(config))
    program = WORKER.format(hidden=HIDDEN, steps=STEPS)
    done = subprocess.run(
        [sys.executable, "-c", program, scratch / "config.json"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found = json.loads(done.stdout.splitlines()[-1])
    waited = statistics.median(found["seconds"][2:])
    read = 4 * found["elements"] / bytes_a_second
    return {"elements": found["elements"], "wait_ms": waited * 1e3, "read_ms": read * 1e3, "reads": waited / read}


def table(results: dict[str, Any]) -> str:
    lines = ["| of 64 MiB, on one core | signs | signs and statistics |", "|---|---:|---:|"]
    for name in ROWS:
        row = results[name]
        lines.append(f"| {name} | {row['signs']:.2f} | {row['with_statistics']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = kernels()
    results: dict[str, Any] = {}
    for name, (signs, both, read) in ROWS.items():
        plain = found[read]["ns"]
        results[name] = {"signs": found[signs]["ns"] / plain, "with_statistics": found[both]["ns"] / plain}
        print(
            f"{name}: signs {results[name]['signs']:.2f} plain reads, "
            f"with statistics {results[name]['with_statistics']:.2f}"
        )
    with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch:
        results["model"] = model(Path(scratch), found["uncached_sum/fp32"]["bytes_a_second"])
    row = results["model"]
    print(f"{row['elements']:,} gradients: {row['wait_ms']:.2f} ms a call, {row['reads']:.2f} plain reads")
    if options.write:
        kept = figures.keep("signs", results)
        text = (
            f"On {kept['date']}, on {kept['machine']}, in times of a plain read of the same bytes:\n\n{table(results)}"
        )
        figures.put_table("monitoring.md", "signs bench", text)
    if (worst := max(results[name]["signs"] for name in ROWS)) > LIMIT_READS:
        raise SystemExit(f"signs: {worst:.2f} plain reads; at most {LIMIT_READS}")


if __name__ == "__main__":
    main()

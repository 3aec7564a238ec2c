#!/usr/bin/env python3
"""Runs every benchmark: the programs of PARTS beside this file, and the microbenchmarks.

bench.py                  all of it, beside mindstudio-probe; an hour. Writes the tables in docs/ and docs/figures/
bench.py --pairs 10       fewer pairs of steps a row
bench.py --only micro     one part: a name of PARTS, or micro
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# The programs, and their arguments.
PARTS = {
    "overhead": ["--write"],  # the cost of capture
    "busy": ["--write"],  # the same where no core is free
    "load": ["--write"],  # many ranks on one server
    "compare": ["--write"],  # comparisons
    "views": ["--write"],  # graph databases
    "graph": [],  # probes in compiled models
    "trend_database": [],
    "page": ["--write"],  # the graph on the page
    "check": ["--real", "--write"],  # checking operators
    "mindspore_overhead": ["--write"],  # the cost of capture in MindSpore
    "replay": ["--write"],  # a step that runs twice
    "live_check": ["--write"],  # checking them while a job runs
    "sensitivity": ["--write"],  # perturbing them meanwhile
    "job_queue": ["--write"],  # the work queue
    "training_watch": [],  # task monitor
    "signs": ["--write"],  # the signs of gradients
    "spread": ["--write"],  # what-if formats, kurtosis
    "selection": ["--write"],  # calls that select leaves out
    "checkpoint_diff": ["--gib", "1"],  # two checkpoints
    "weights": [],  # digests of a program's weights
    "replies": ["--write"],  # judging what a model said
    "live_replies": ["--write"],  # while vLLM writes it
}
MICRO_SECONDS = 300


def microbenchmarks() -> int:
    worst = 0
    for binary in sorted((ROOT / "build" / "benchmarks").glob("*")):
        if binary.is_file() and os.access(binary, os.X_OK):
            print(f"== {binary.name}", flush=True)
            done = subprocess.run([str(binary), "--benchmark_min_time=0.05"], check=False, timeout=MICRO_SECONDS)
            worst = max(worst, done.returncode)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=(*PARTS, "micro"))
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    failed = []
    for part in [options.only] if options.only else [*PARTS, "micro"]:
        if part == "micro":
            code = microbenchmarks()
        else:
            more = [*PARTS[part], *(["--pairs", str(options.pairs)] if part == "overhead" else [])]
            code = subprocess.run([sys.executable, str(HERE / f"{part}.py"), *more], check=False).returncode
        if code != 0:
            failed.append(part)
    if failed:
        raise SystemExit(f"bench: {', '.join(failed)} ended with an error or over a limit")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs every benchmark: the cost of capture (overhead.py), many ranks on one server (load.py), comparisons
(compare.py), probes in compiled models (graph.py), trend databases (trend_database.py), the graph on the page (page.py), and
the microbenchmarks.

bench.py                  all of it, beside mindstudio-probe; 45 minutes. Writes docs/overhead.md, docs/load.md and
                          docs/figures/
bench.py --pairs 10       fewer pairs of steps a row
bench.py --only micro     one part: overhead, load, compare, graph, trend_database, page or micro
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PARTS = ("overhead", "load", "compare", "graph", "trend_database", "page", "micro")
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
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    failed = []
    for part in [options.only] if options.only else PARTS:
        if part == "micro":
            code = microbenchmarks()
        else:
            more = {
                "overhead": ["--write", "--pairs", str(options.pairs)],
                "load": ["--write"],
                "compare": ["--write"],
                "page": ["--write"],
            }.get(part, [])
            code = subprocess.run([sys.executable, str(HERE / f"{part}.py"), *more], check=False).returncode
        if code != 0:
            failed.append(part)
    if failed:
        raise SystemExit(f"bench: {', '.join(failed)} ended with an error or over a limit")


if __name__ == "__main__":
    main()

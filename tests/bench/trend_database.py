#!/usr/bin/env python3
"""A trend database of a run, beside the time that SQLite takes for the same rows, prepared in memory, in the same run.

trend_database.py                 100 steps of 3,000 targets, three times
trend_database.py --steps 10000   all that one would look at; three minutes

Over the limit it ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "benchmarks" / "trend_database_benchmark"
LIMIT = 1.5  # of the time for prepared rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    done = subprocess.run(
        [PROGRAM, "--benchmark_format=json"],
        env=os.environ | {"MSPROBE_BENCH_STEPS": str(options.steps)},
        capture_output=True,
        text=True,
        check=True,
    )
    (measured,) = json.loads(done.stdout)["benchmarks"]
    if measured.get("error_occurred"):
        raise SystemExit(f"trend_database: {measured['error_message']}")
    print(
        f"{measured['rows']:,.0f} rows in {measured['seconds']:.2f} s, {measured['rows_per_second'] / 1e6:.2f} million a "
        f"second; x{measured['of_prepared']:.2f} of prepared rows; {measured['bytes'] / 2**20:.0f} MiB, "
        f"memory {measured['peak_mib']:.0f} MiB"
    )
    if measured["of_prepared"] > LIMIT:
        raise SystemExit(f"trend_database: over the limit of x{LIMIT} of prepared rows")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What the work queue leases and takes results of in a second, durably, with a million items.

job_queue.py              the microbenchmark of server/jobs, held to its limits
job_queue.py --write      keeps the figures in docs/figures/job_queue.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import figures

BINARY = Path(__file__).resolve().parents[2] / "build" / "benchmarks" / "job_queue_benchmark"
LEAST_PER_SECOND = 20_000  # items leased, and finished
MOST_MIB = 24  # that memory grows by, over a million items: memtables, and a cache of 8 MiB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    done = subprocess.run([BINARY, "--benchmark_format=json"], check=True, stdout=subprocess.PIPE)
    results = {}
    missed = []
    for row in json.loads(done.stdout)["benchmarks"]:
        if row.get("error_occurred"):
            raise SystemExit(f"job_queue: {row['name']}: {row['error_message']}")
        name = "x".join(row["name"].split("/")[1:3])
        rate, growth = row["leased_and_finished_per_s"], row["memory_growth_mib"]
        results[name] = {
            "leased_and_finished_per_s": rate,
            "added_per_s": row["added_per_s"],
            "store_alone_per_s": row["rows_per_s"],
            "memory_growth_mib": growth,
        }
        print(
            f"batches of {name.replace('x', ', workers: ')}: {rate:,.0f} items/s leased and finished, "
            f"{row['added_per_s']:,.0f} added; the store alone {row['rows_per_s']:,.0f}; memory +{growth:.0f} MiB"
        )
        if rate < LEAST_PER_SECOND or growth > MOST_MIB:
            missed.append(name)
    if missed:
        raise SystemExit(f"job_queue: {', '.join(missed)}: under {LEAST_PER_SECOND:,} items/s or over {MOST_MIB} MiB")
    if options.write:
        figures.keep("job_queue", results)


if __name__ == "__main__":
    main()

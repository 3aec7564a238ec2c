#!/usr/bin/env python3
"""What rules take of a core of the server, how soon an alarm is there, and what series take at rest.

rules.py           scalars of 1,000 ranks with 2,000 series each, a step a second, under the built-in rules: the time of
                   the processor that the rules' thread takes for a second of them; the longest time from points that
                   are durable, one of which is NaN, to the stored alarm. 2,000 steps of 40 tensors with five
                   statistics, each a random float: bytes a point when the session has ended
rules.py --write   keeps the figures in docs/figures/rules.json, and writes the table of docs/monitoring.md

Over a limit it ends with 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile

import figures

PROGRAM = figures.ROOT / "build" / "benchmarks" / "rule_watch_benchmark"
LIMITS = {"cpu": 1.0, "latency": 1.0, "bytes_per_point": 8.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found: dict[str, float] = {}
    with tempfile.NamedTemporaryFile(suffix=".json") as written:  # on stdout the server's log stands between
        command = [PROGRAM, f"--benchmark_out={written.name}", "--benchmark_out_format=json"]
        subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True)
        benchmarks = json.load(written)["benchmarks"]
    for measured in benchmarks:
        if measured.get("error_occurred"):
            raise SystemExit(f"rules: {measured['error_message']}")
        found |= {name: value for name, value in measured.items() if isinstance(value, float)}
    table = (
        "| rules over 2,000,000 points a second, of a core | from durable points to a stored alarm, at most | memory "
        "| a point at rest |\n|---:|---:|---:|---:|\n"
        f"| {found['cpu']:.2f} | {found['latency'] * 1000:.0f} ms | {found['memory_mib'] / 1024:.1f} GiB | "
        f"{found['bytes_per_point']:.1f} bytes |"
    )
    print(table)
    if options.write:
        kept = figures.keep("rules", {name: found[name] for name in (*LIMITS, "memory_mib")})
        figures.put_table("monitoring.md", "rules bench", f"{table}\n\n{figures.measured_on(kept, 'rules.py')}")
    for name, limit in LIMITS.items():
        if found[name] > limit:
            raise SystemExit(f"rules: {name} is {found[name]:.3g}, over its limit {limit:g}")


if __name__ == "__main__":
    main()

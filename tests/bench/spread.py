#!/usr/bin/env python3
"""What statistics of how elements are spread cost, in times of a plain read of the same bytes.

    spread.py            a minute
    spread.py --write    keeps the results in docs/figures/spread.json and docs/monitoring.md

Of 16M elements on one core, each with the five statistics in one pass; the best of five by time of the CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import figures

KERNELS = Path(__file__).resolve().parents[2] / "build" / "benchmarks" / "stats_benchmark"
ROWS = {
    "kurtosis": "`kurtosis`, `underflow_*`",
    "bf16": "`error_bf16`, `to_zero_bf16`",
    "fp16": "the same of `fp16`",
    "e4m3": "of `e4m3`",
    "e5m2": "of `e5m2`",
    "mxfp8_e4m3": "of `mxfp8_e4m3`",
    "mxfp8_e5m2": "of `mxfp8_e5m2`",
    "mxfp4": "of `mxfp4`",
    "nvfp4": "of `nvfp4`",
    "all": "all of them",
}
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


def measure() -> dict[str, dict[str, float]]:
    done = subprocess.run(
        [
            KERNELS,
            "--benchmark_filter=^(gathered/.*|plain_sum/(fp32|bf16))$",
            "--benchmark_repetitions=5",
            "--benchmark_min_time=0.05",
            "--benchmark_format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    best: dict[str, float] = {}
    for one in json.loads(done.stdout)["benchmarks"]:
        if one["run_type"] == "iteration":
            best[one["run_name"]] = min(one["cpu_time"], best.get(one["run_name"], float("inf")))
    return {
        row: {name: best[f"gathered/{dtype}/{row}"] / best[f"plain_sum/{dtype}"] for name, dtype in DTYPES.items()}
        for row in ROWS
    }


def table(results: dict[str, dict[str, float]]) -> str:
    lines = [f"| asked for | {' | '.join(DTYPES)} |", "|---|---:|---:|"]
    for row, shown in ROWS.items():
        lines.append(f"| {shown} | {' | '.join(f'{results[row][name]:.1f}' for name in DTYPES)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    results = measure()
    print(table(results))
    if options.write:
        kept = figures.keep("spread", results)
        figures.put_table(
            "monitoring.md", "spread bench", f"{figures.measured_on(kept, 'spread.py')}\n\n{table(results)}"
        )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What the tool costs: a model step's time with none, with this tool, and with the established one.

The measurement is overhead.py of the reference directory (MSPROBE_REFERENCE), run by either environment in turn; this
script only calls it and prints the ratios. Then the microbenchmarks of the C++ rooms run, briefly.

    bench.py                      L0, L1 and mix, statistics, forward; about six minutes
    bench.py --levels L1 --train  one level, training steps
    bench.py --no-micro           the ratios alone
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS = 300


def measure(python: Path, script: Path, level: str, options: argparse.Namespace) -> dict[str, Any]:
    """One run of overhead.py; its one JSON line."""
    command = [str(python), str(script), f"--level={level}", f"--layers={options.layers}", f"--repeat={options.repeat}"]
    command += ["--task", options.task, *(["--train"] if options.train else [])]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1 and shutil.which("taskset"):
        # The traced process has a core for itself; an embedded server started by it resets its own affinity.
        command = ["taskset", "-c", str(cores[-1]), *command]
    done = subprocess.run(command, text=True, capture_output=True, timeout=RUN_SECONDS, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)} ended with {done.returncode}\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def ratios(options: argparse.Namespace, console: Console) -> None:
    reference = Path(os.environ.get("MSPROBE_REFERENCE", ROOT.parent / "shared" / "reference"))
    script = reference / "dump" / "overhead.py"
    if not script.is_file():
        console.print(f"no measurement script at {script}: set MSPROBE_REFERENCE; the ratios are left out")
        return
    oracle = Path(os.environ.get("MSPROBE_ORACLE", ROOT / ".oracle")) / "bin" / "python"
    pythons = {"msprobe-server": Path(sys.executable)}
    if oracle.exists():
        pythons["mindstudio-probe"] = oracle
    else:
        console.print(f"no established tool at {oracle} (make oracle); measuring ours alone")

    kind = "training" if options.train else "forward"
    result = Table(title=f"{options.task}, {kind}, {options.layers} layers: step times, medians of {options.repeat}")
    for title in ("level", "tool", "none ms", "dump ms", "ratio", "CPU ratio", "records", "MB/step", "peak RSS +MB"):
        result.add_column(title, justify="left" if title in ("level", "tool") else "right")
    for level in options.levels:
        for tool, python in pythons.items():
            taken = measure(python, script, level, options)
            result.add_row(
                *(level, tool, f"{taken['base_ms']:.1f}", f"{taken['dump_ms']:.1f}", f"{taken['ratio']:.2f}"),
                *(f"{taken['cpu_ratio']:.2f}", str(taken["records"]), f"{taken['bytes'] / 1e6:.2f}"),
                str(taken["dump_peak_rss_mb"] - taken["base_peak_rss_mb"]),
            )
    console.print(result)


def microbenchmarks(console: Console) -> None:
    for binary in sorted((ROOT / "build" / "benchmarks").glob("*")):
        if binary.is_file() and os.access(binary, os.X_OK):
            console.print(f"[bold]{binary.name}[/bold]")
            sys.stdout.flush()
            subprocess.run([str(binary), "--benchmark_min_time=0.05"], check=False, timeout=RUN_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", nargs="+", default=["L0", "L1", "mix"], choices=("L0", "L1", "mix"))
    parser.add_argument("--task", default="statistics", choices=("statistics", "tensor", "structure"))
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--train", action="store_true", help="training steps instead of forward alone")
    parser.add_argument("--no-micro", action="store_true", help="leave the microbenchmarks out")
    options = parser.parse_args()
    console = Console(width=120)
    ratios(options, console)
    if not options.no_micro:
        microbenchmarks(console)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The main job from end to end: runs main_job.py with level mix, then shows what the store holds and what was exported.

python demo/demo.py --output DIR
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from msprobe_client import Client, RunSummary, ServerUnavailable, StepSummary
from rich.console import Console
from rich.table import Table

MAIN_JOB = Path(__file__).with_name("main_job.py")
# The embedded server leaves shortly after the process it served; the store has one owner at a time.
LEAVE_SECONDS = 60


def prepare(output: Path) -> Path:
    """Removes what an earlier demo left in `output`, and nothing else; returns the configuration."""
    output.mkdir(parents=True, exist_ok=True)
    for old in [*output.glob("step*"), output / ".msprobe"]:
        shutil.rmtree(old, ignore_errors=True)
    config = output / "config.json"
    section = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    settings = {"task": "statistics", "dump_path": str(output), "level": "mix", "run": "demo", "statistics": section}
    config.write_text(json.dumps(settings, indent=1))
    return config


def read_store(data_directory: Path) -> tuple[RunSummary, list[StepSummary]]:
    """The one run in the store, by an embedded server of the client's own."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while True:
        try:
            with Client(data_dir=data_directory) as client:
                (run,) = client.runs()
                return run, client.steps(run.run)
        except ServerUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB"


def table(run: RunSummary, steps: list[StepSummary]) -> Table:
    result = Table(title=f"run {run.run}: {run.steps} steps, {', '.join(map(str, run.ranks))}", show_footer=True)
    result.add_column("step", "all", justify="right")
    result.add_column("rank")
    result.add_column("state")
    columns = ("records", "tensors", "nan_tensors", "inf_tensors")
    for name, title in zip(columns, ("records", "tensors", "NaN", "Inf"), strict=True):
        result.add_column(title, str(sum(getattr(step, name) for step in steps)), justify="right")
    result.add_column("bytes", kib(sum(step.row_bytes + step.payload_bytes for step in steps)), justify="right")
    for step in steps:
        numbers = (str(getattr(step, name)) for name in columns)
        size = kib(step.row_bytes + step.payload_bytes)
        result.add_row(str(step.step), str(step.rank), step.state, *numbers, size)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo_out"), help="the dump_path (default: %(default)s)")
    output = parser.parse_args().output.resolve()
    config = prepare(output)

    done = subprocess.run([sys.executable, str(MAIN_JOB), str(config)], check=False)
    if done.returncode != 0:
        print(f"the main job ended with {done.returncode}", file=sys.stderr)
        return 1

    stores = sorted((output / ".msprobe").glob("*/"))
    if len(stores) != 1:
        print(f"expected one store in {output / '.msprobe'}, found {[store.name for store in stores]}", file=sys.stderr)
        return 1
    run, steps = read_store(stores[0])
    console = Console()
    console.print(table(run, steps))
    exported = sorted(output.glob("step*/*/dump.json"), key=lambda path: int(path.parts[-3].removeprefix("step")))
    console.print("exported:")
    for path in exported:
        console.print(f"  {path.parent}", soft_wrap=True, highlight=False)
    console.print(
        f"more: msprobe-client --data_dir {output} records {run.run} --step 0", soft_wrap=True, highlight=False
    )
    missing = {step.step for step in steps} - {int(path.parts[-3].removeprefix("step")) for path in exported}
    if missing:
        print(f"steps that were not exported: {sorted(missing)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

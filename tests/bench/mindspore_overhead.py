#!/usr/bin/env python3
"""What capture costs a step of MindSpore in PyNative mode, on a CPU, beside mindstudio-probe's figure.

    mindspore_overhead.py            every row
    mindspore_overhead.py --ours     without mindstudio-probe
    mindspore_overhead.py --write    also writes the table of docs/mindspore.md and docs/figures/mindspore_overhead.json

It ends with 1 where a limit is missed. Plain and captured steps of a transformer of mint operators alternate A B B A
in one process (mindspore_overhead_worker.py). A ratio is the median, over all A B B A, of the time of the two captured
steps over that of the two plain ones. Times are of the caller's thread, less what it waited for a core (own_time.py);
those of a small record are its CPU time. Between them stand steps that wait for the result of every call, as capture
has to, and do nothing else: the floor. In training they do so in the forward pass alone.
mindstudio-probe runs with the one line without which it fails on a CPU (mint.norm). Memory is the peak of a program
that captures less that of one without the tool: medians of processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from figures import ROOT, keep, measured_on, put_table

NAME = "mindspore_overhead"
WORKER = Path(__file__).with_name("mindspore_overhead_worker.py")
RUN_SECONDS = 1200
STEP_LIMIT = 1.15
RECORD_LIMIT = 8.0  # us
MEMORY_LIMIT = 64.0  # MiB
CASES = {"inference": (), "training": ("--train",)}
PEAK_STEPS = 20


def python(ours: bool) -> Path:
    if ours:
        return Path(os.environ.get("MSPROBE_MINDSPORE", ROOT / ".venv-mindspore")) / "bin" / "python"
    return Path(os.environ.get("MSPROBE_MINDSPORE_ORACLE", ROOT / ".oracle-mindspore")) / "bin" / "python"


def work(ours: bool, *arguments: str) -> dict[str, Any]:
    """One run of the worker; its line of JSON."""
    environment = {name: value for name, value in os.environ.items() if name not in ("MSPROBE_SERVER", "PYTHONPATH")}
    if not ours:
        environment["MSPROBE_SHIM"] = "1"
    with tempfile.TemporaryDirectory(prefix="msprobe-bench") as scratch:
        done = subprocess.run(
            [python(ours), WORKER, "--scratch", scratch, *arguments],
            text=True,
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
            env=environment,
        )
    if done.returncode != 0:
        raise SystemExit(f"bench: {arguments} ended with {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def step_of(ours: bool, pairs: int, *arguments: str) -> dict[str, float]:
    found = work(ours, *arguments, "--pairs", str(pairs))
    times = found["times"]

    def pair_sums(seconds: list[float]) -> list[float]:
        return [sum(seconds[i : i + 2]) for i in range(0, len(seconds), 2)]

    def ratio(kind: str) -> float:
        pairs = zip(pair_sums(times["plain"]), pair_sums(times[kind]), strict=True)
        return statistics.median(after / before for before, after in pairs)

    if found.get("lost"):
        raise SystemExit(f"bench: {found['lost']} records were lost")
    return {
        "plain_ms": statistics.median(times["plain"]) * 1e3,
        "ratio": ratio("captured"),
        "floor": ratio("awaited"),
        "records": found.get("records", 0),
    }


def record_of(ours: bool, blocks: int) -> float:
    """us of the caller's CPU for one small record."""
    found = work(ours, "--mode", "records", "--level", "L1", "--blocks", str(blocks))
    return (statistics.median(found["blocks"]) - statistics.median(found["plain"])) * 1e3


def memory_of(ours: bool, steps: int, processes: int) -> float:
    """MiB."""

    def peak(*more: str) -> float:
        asked = ("--mode", "peak", "--train", "--pairs", str(steps), *more)
        return statistics.median(work(ours, *asked)["peak_mib"] for _ in range(processes))

    return peak() - peak("--plain")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tools = [True] if options.ours else [True, False]
    for ours in tools:
        rows: dict[str, Any] = {}
        for case, arguments in CASES.items():
            rows[case] = step_of(ours, options.pairs if ours else options.real_pairs, *arguments)
            print("ours" if ours else "mindstudio-probe", case, rows[case], flush=True)
        rows["record_us"] = record_of(ours, 20 if ours else 2)
        rows["memory_mib"] = memory_of(ours, PEAK_STEPS if ours else 4, 3 if ours else 1)
        print({name: rows[name] for name in ("record_us", "memory_mib")}, flush=True)
        found["ours" if ours else "real"] = rows
    return found


Line = tuple[str, float, float, float | None, float | None, int]


def lines_of(found: dict[str, Any]) -> list[Line]:
    """What is measured, ours, its limit, its floor, mindstudio-probe's, decimals."""
    ours, real = found["ours"], found.get("real")

    def theirs(*path: str) -> float | None:
        value: Any = real
        for name in path:
            value = None if value is None else value[name]
        return value

    lines: list[Line] = []
    for case in CASES:
        what = f"a step of {case}, level mix, {ours[case]['plain_ms']:.0f} ms without capture: its multiple"
        lines.append((what, ours[case]["ratio"], STEP_LIMIT, ours[case]["floor"], theirs(case, "ratio"), 2))
    what = "a record of a call that runs no operator, with 16 elements in and out, us of the caller's CPU"
    lines.append((what, ours["record_us"], RECORD_LIMIT, None, theirs("record_us"), 1))
    what = "memory added to a training's peak, MiB"
    lines.append((what, ours["memory_mib"], MEMORY_LIMIT, None, theirs("memory_mib"), 0))
    return lines


def table(found: dict[str, Any], kept: dict[str, Any]) -> str:
    lines = ["| | msprobe-agent | limit | floor | mindstudio-probe |", "|---|---:|---:|---:|---:|"]
    for what, ours, limit, floor, theirs, decimals in lines_of(found):
        shown = f"{ours:.{decimals}f}"
        shown = f"**{shown}**" if ours > limit else shown
        others = ("" if each is None else f"{each:.{decimals}f}" for each in (floor, theirs))
        lines.append(f"| {what} | {shown} | {limit:g} | {' | '.join(others)} |")
    return "\n".join([*lines, "", f"MindSpore 2.7.2; {measured_on(kept, f'{NAME}.py')}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--real-pairs", type=int, default=3, help="of mindstudio-probe")
    parser.add_argument("--ours", action="store_true", help="without mindstudio-probe")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = measure(options)
    if options.write:
        put_table("mindspore.md", NAME, table(found, keep(NAME, found)))
    missed = [f"{what}: {ours:.3f}, limit {limit}" for what, ours, limit, *_ in lines_of(found) if ours > limit]
    if missed:
        raise SystemExit("mindspore_overhead: limits are missed\n" + "\n".join(missed))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What capture costs a program that leaves it no core: steps back to back, on all cores or on one.

    busy.py            every row, ours and mindstudio-probe
    busy.py --ours     without mindstudio-probe
    busy.py --write    also keeps the results in docs/figures/busy.json and the table in docs/overhead.md

It ends with 1 where a limit is missed.

Blocks of plain and captured steps alternate A B B A (overhead_worker.py). No step waits for anything, and nothing is
pinned. Where the program takes all cores, by a rank on each or by one rank with as many threads, the agent's threads
and the embedded servers, which write dump.json and with tensors the .pt files, take their time from it. A step that is
not measured precedes each block, so its work competes with the block as the block's last step competes with what
follows. A ratio is the median over all A B B A and ranks of the time of the two captured blocks over that of the two
plain ones.

The floor of a row with tensors is the processor time of copying as many bytes once, because the program may overwrite
them, and of writing them into new files once, through the page cache or past it, whichever takes less, shared among
the cores. It counts nothing else that capture does.
"""

from __future__ import annotations

import argparse
import mmap
import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
from overhead import median, paired, python, ratio_of, work

CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Case:
    name: str
    limit: float
    ranks: int
    threads: int  # of torch, a rank
    arguments: tuple[str, ...]


def cases() -> list[Case]:
    made = []
    places = (("a rank on each core", CORES, 1), ("one rank on all cores", 1, CORES), ("one rank on one core", 1, 1))
    for place, ranks, threads in places:
        for level, limit in (("L0", 1.05), ("L1", 1.07), ("mix", 1.09)):
            made.append(Case(f"{place}, statistics, {level}", limit, ranks, threads, ("--level", level)))
        if threads * ranks > 1:
            tensors = ("--level", "mix", "--task", "tensor")
            made.append(Case(f"{place}, tensors, mix", 1.35, ranks, threads, tensors))
    return made


def measure(case: Case, ours: bool, pairs: int, steps: int) -> dict[str, Any]:
    arguments = ["--mode", "blocks", "--ranks", str(case.ranks), "--threads", str(case.threads)]
    ranks = work(ours, (*case.arguments, *arguments, "--pairs", str(pairs), "--steps", str(steps)))["ranks"]
    both, plain = [], []
    for rank in ranks:
        times = rank["times"]
        both += paired(times["plain"], times["captured"])
        plain += times["plain"]
    return {
        "pairs": pairs,
        "steps": steps,
        "plain_ms": median(plain) / steps * 1e3,
        "ratio": ratio_of(both),
        "spread": statistics.median(a["wall"] / d["wall"] for a, d in zip(plain[::2], plain[1::2], strict=True)),
        "behind": statistics.median(rank["behind"] for rank in ranks),
        "pt_mib": statistics.median(rank["pt_mib"] for rank in ranks),
        "lost": sum(rank.get("lost", 0) for rank in ranks),
    }


def seconds_to_copy_and_write(size: int) -> float:
    """Processor time of the fastest of ten, each into memory that is there and files that are not: five through the
    page cache, five past it."""
    piece = os.urandom(1 << 20)
    copy = mmap.mmap(-1, len(piece))  # begins at a page, as O_DIRECT needs it
    took = []
    with tempfile.TemporaryDirectory(prefix="msprobe-bench") as directory:
        for attempt in range(10):
            path, past_cache = Path(directory) / str(attempt), os.O_DIRECT if attempt % 2 else 0
            try:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | past_cache, 0o600)
            except OSError:  # this file system has nothing but its page cache
                continue
            began = time.process_time()
            for _ in range(size // len(piece)):
                copy[:] = piece
                os.write(file, copy)
            took.append(time.process_time() - began)
            os.close(file)
            path.unlink()
    return min(took)


def floor_of(case: Case, ours: dict[str, Any]) -> float | None:
    if not ours["pt_mib"]:
        return None
    share = case.ranks * seconds_to_copy_and_write(int(ours["pt_mib"] * 2**20)) / CORES
    return 1 + share / (ours["plain_ms"] / 1e3)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| steps back to back | plain ms | plain / plain | mindstudio-probe | ours | floor | MiB of .pt a step "
        "| files are there, s after the block |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ours, real = row["ours"], row.get("real")
        shown = f"{ours['ratio']:.3f} of {row['limit']:.2f}"
        lines.append(
            f"| {row['case']} | {ours['plain_ms']:.0f} | {ours['spread']:.3f} | "
            f"{format(real['ratio'], '.2f') if real else ''} | "
            f"{f'**{shown}**' if ours['ratio'] > row['limit'] else shown} | "
            f"{format(row['floor'], '.2f') if row['floor'] else ''} | "
            f"{format(ours['pt_mib'], '.0f') if ours['pt_mib'] else ''} | "
            f"{ours['behind']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4, help="A B B A of blocks")
    parser.add_argument("--steps", type=int, default=8, help="of a block")
    parser.add_argument("--only", default="", help="a regular expression: these rows")
    parser.add_argument("--ours", action="store_true", help="without mindstudio-probe")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    real = python(False).exists() and not options.ours
    rows: list[dict[str, Any]] = []
    for case in cases():
        if not re.search(options.only, case.name):
            continue
        row: dict[str, Any] = {"case": case.name, "limit": case.limit}
        row["ours"] = measure(case, True, options.pairs, options.steps)
        row["floor"] = floor_of(case, row["ours"])
        if real:
            row["real"] = measure(case, False, 1, 3)
        rows.append(row)
        print(row, flush=True)
    print(table(rows))
    if options.write:
        kept = figures.keep("busy", rows)
        figures.put_table("overhead.md", "busy bench", f"{figures.measured_on(kept, 'busy.py')}\n\n{table(rows)}")
    missed = [row["case"] for row in rows if row["ours"]["ratio"] > row["limit"]]
    if missed:
        sys.exit(f"busy: over the limit: {'; '.join(missed)}")


if __name__ == "__main__":
    main()

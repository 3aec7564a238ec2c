#!/usr/bin/env python3
"""What capture costs a model's step: the answer and the table of docs/overhead.md.

    overhead.py                       every row, ours and mindstudio-probe; some forty minutes
    overhead.py --quick               fewer pairs; under eight minutes
    overhead.py --only "mix" --pairs 10 --ours
    overhead.py --write               also writes docs/overhead.md's answer and table, and docs/figures/overhead.json

It ends with 1 where a limit is missed, and where a ratio lies under its floor, which is then wrong.

In each case plain and captured steps alternate A B B A in one process (overhead_worker.py). Its main thread has a
core for itself; its other threads, the server and the interrupts of the disk have the other cores. A ratio is the
median, over all A B B A, of the time of the two captured steps over that of the two plain ones around them, so that a
machine that becomes slower for a while does so for both. There are as many A B B A as it takes to tell whether the
limit is met. "spread" is the ratio of the first plain steps to the second. A first step is the first of a process, so
it is the median of several processes, each against its own plain steps. CPU is that of the process and its server
together, so nothing hides on another core. What reading threads take from the caller is the caller's work, and counts
as such where all CPU is held against it. The embedded server's time to write each step's dump.json counts, and is
also shown: it is its CPU less the CPU of a server that only stores. The floor is what nothing goes below: the time to
read the tensors once as fast as the cores that read them do at best in the same run, from caches too: all together
the large tensors, one alone the others. The target of a row whose floor is above its limit is 1.3 times the floor's
part. Memory is the peak of a program that captures less that of one without the tool, from the start of each. The
microbenchmarks are those of agent/stats/statistics_benchmark.cc, against a sum by eight vector accumulators and
against zlib.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import keep, machine, today
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("overhead_worker.py")
RUN_SECONDS = 1800
PEAK_STEPS = 20
SERVER_SECONDS = 60
NAMES = {"real": "mindstudio-probe"}
Pair = tuple[float, float]
PARTS = ("answer", "table")  # of docs/overhead.md, between comments
RECORD_LIMITS = {"ours": 5, "ours, no stacks": 3, "ours, no edges": 5}  # us of the caller's CPU
FLAT_LIMIT = 1.25

# The rows that the answer shows.
ANSWERS = {
    "statistics, inference, L0": "statistics of every module",
    "statistics, inference, mix": "statistics of every module and API call",
    "tensors, inference, mix": "the tensors of every module and API call",
}


@dataclass(frozen=True)
class Case:
    name: str
    limit: float
    first_limit: float | None
    arguments: tuple[str, ...]
    own_server: bool = False

    @property
    def tensors(self) -> bool:
        return self.own_server

    @property
    def memory_limit(self) -> int:
        return 256 if self.tensors else 64

    @property
    def cpu_limit(self) -> float:
        """Limit of all CPU, dump.json's included, as a multiple of the caller's and of those who read for it."""
        return 4 if self.tensors else 1.5


def cases() -> list[Case]:
    made = []
    levels = ("L0", "L1", "mix")
    for level, limit, first in zip(levels, (1.04, 1.08, 1.12), (1.15, 1.15, 1.15), strict=True):
        made.append(Case(f"statistics, inference, {level}", limit, first, ("--level", level)))
    for level, limit in zip(levels, (1.06, 1.12, 1.18), strict=True):
        made.append(Case(f"with CRC-32, inference, {level}", limit, None, ("--level", level, "--summary", "md5")))
    for level, limit in zip(levels, (1.25, 1.30, 1.40), strict=True):
        made.append(Case(f"statistics, training, {level}", limit, None, ("--level", level, "--train", "--layers", "2")))
    for level, limit in zip(levels, (1.5, 2.0, 2.2), strict=True):
        made.append(Case(f"tensors, inference, {level}", limit, None, ("--level", level, "--task", "tensor"), True))
    return made


def environment(ours: bool) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("MSPROBE_SERVER", "MSPROBE_RUN")}
    if not ours:
        kept.pop("PYTHONPATH", None)
    return kept


def python(ours: bool) -> Path:
    return Path(sys.executable) if ours else Path(os.environ.get("MSPROBE_ORACLE", ROOT / ".oracle")) / "bin" / "python"


@contextmanager
def server(scratch: Path) -> Iterator[str]:
    """A server without exports: it only has to get the payloads."""
    beside = Path(sys.executable).with_name("msprobe-server")  # where `make build` puts it
    binary = os.environ.get("MSPROBE_SERVER_BINARY") or (str(beside) if beside.exists() else shutil.which(beside.name))
    if binary is None:
        raise SystemExit("bench: no msprobe-server: run `make build`")
    socket = Path(tempfile.mkdtemp(prefix="msb", dir="/tmp")) / "s"
    with subprocess.Popen(
        [binary, "--listen", f"unix:{socket}", "--data_dir", str(scratch / "data")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            deadline = time.monotonic() + SERVER_SECONDS
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"bench: {binary} does not listen on {socket}: run it by hand")
                time.sleep(0.05)  # between two looks at whether it listens
            yield f"unix:{socket}"
        finally:
            process.terminate()
            process.wait(60)
            shutil.rmtree(socket.parent, ignore_errors=True)


def work(ours: bool, arguments: tuple[str, ...], own_server: bool = False) -> dict[str, Any]:
    """One run of the worker; its line of JSON."""
    with tempfile.TemporaryDirectory(prefix="msprobe-bench") as root:
        scratch = Path(root)

        def run(*more: str) -> dict[str, Any]:
            done = subprocess.run(
                [str(python(ours)), str(WORKER), "--scratch", root, *arguments, *more],
                text=True,
                capture_output=True,
                timeout=RUN_SECONDS,
                check=False,
                env=environment(ours),
            )
            if done.returncode != 0:
                raise SystemExit(f"bench: {arguments} ended with {done.returncode}\n{done.stderr[-3000:]}")
            result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return result

        if not (ours and own_server):
            return run()
        with server(scratch) as address:
            return run("--server", address)


def streamed(case: Case, embedded: dict[str, Any], pairs: int) -> dict[str, Any]:
    """CPU of the same steps with a server that only stores, and the embedded one's further CPU for the files."""
    row = row_of(case, work(True, (*case.arguments, "--pairs", str(pairs)), own_server=True))
    found = {name: row[name] for name in ("rest_cpu_ms", "server_cpu_ms")}
    return found | {"files_cpu_ms": max(0.0, embedded["server_cpu_ms"] - row["server_cpu_ms"])}


@functools.cache
def peaks(ours: bool, arguments: tuple[str, ...], own_server: bool, steps: int, processes: int) -> tuple[float, ...]:
    """MiB; of fresh processes, sorted."""
    asked = (*arguments, "--mode", "peak", "--pairs", str(steps))
    return tuple(sorted(float(work(ours, asked, own_server)["peak_mib"]) for _ in range(processes)))


def memory(case: Case, ours: bool, steps: int, processes: int) -> dict[str, float]:
    """MiB that capture adds to the peak: the difference of medians of processes, and the least and most difference."""
    model = tuple(word for word in case.arguments if word in ("--train", "--layers", "2"))
    without = peaks(ours, (*model, "--plain"), False, steps, processes)
    captured = peaks(ours, case.arguments, case.own_server, steps, processes)
    return {
        "memory_mib": statistics.median(captured) - statistics.median(without),
        "memory_least": captured[0] - without[-1],
        "memory_most": captured[-1] - without[0],
    }


def paired(plain: list[dict[str, float]], captured: list[dict[str, float]], clock: str = "wall") -> list[Pair]:
    """Of each A B B A, the means of the plain and of the captured steps."""
    pairs = zip(plain[::2], plain[1::2], captured[::2], captured[1::2], strict=True)
    return [((a[clock] + d[clock]) / 2, (b[clock] + c[clock]) / 2) for a, d, b, c in pairs]


def ratio_of(pairs: list[Pair]) -> float:
    return statistics.median(captured / plain for plain, captured in pairs)


def median(rows: list[dict[str, float]], clock: str = "wall") -> float:
    return statistics.median(row[clock] for row in rows)


def floor_of(result: dict[str, Any], base: float) -> float:
    """The ratio to a plain step of `base` seconds of one that does nothing more than read the tensors."""
    shared = result["bytes_shared"] / result["shared_bandwidth"]
    alone = (result["bytes_read"] - result["bytes_shared"]) / result["bandwidth"]
    return 1 + (shared + alone) / base


def row_of(case: Case, result: dict[str, Any]) -> dict[str, Any]:
    plain, captured = result["times"]["plain"], result["times"]["captured"]
    base = median(plain)
    thread = statistics.median(b - a for a, b in paired(plain, captured, "thread"))
    count = len(captured)
    whole = result["whole"]
    row = {
        "case": case.name,
        "limit": case.limit,
        "plain_ms": base * 1e3,
        "ratio": ratio_of(paired(plain, captured)),
        "thread_ratio": ratio_of(paired(plain, captured, "thread")),
        "spread": statistics.median(a["wall"] / d["wall"] for a, d in zip(plain[::2], plain[1::2], strict=True)),
        "pairs": count,
        "first": result["first"]["wall"] / base,
        "first_limit": case.first_limit,
        "caller_cpu_ms": thread * 1e3,
        # A plain step has no other thread: all of theirs is capture's, whenever it was.
        "reading_cpu_ms": whole["reading"] / count * 1e3,
        "rest_cpu_ms": (whole["process"] - whole["thread"] - whole["reading"]) / count * 1e3,
        "server_cpu_ms": whole["server"] / count * 1e3,
        "cpu_limit": case.cpu_limit,
        "memory_limit": case.memory_limit,
    }
    if "bytes_read" in result:
        row |= {name: result[name] for name in ("bytes_read", "bytes_shared", "bandwidth", "shared_bandwidth")}
        row["floor"] = floor_of(result, base)
        row["lost"] = result["faults"]
        if row["floor"] > case.limit:
            row["limit"] = 1 + 1.3 * (row["floor"] - 1)
    return row


def first_steps(case: Case, processes: int) -> dict[str, Any]:
    """The cost of a process's first captured step: the median of fresh processes."""
    found = []
    for _ in range(processes):
        result = work(True, (*case.arguments, "--mode", "first", "--pairs", "10"), case.own_server)
        base = median(result["plain"])
        floor = floor_of(result, base)
        found.append((result["first"]["wall"] / base, floor))
    ratios = sorted(ratio for ratio, _ in found)
    floor = statistics.median(floor for _, floor in found)
    limit = case.first_limit
    if limit is not None:
        limit = max(limit, 1 + 1.3 * (floor - 1)) if floor > limit else limit
    return {
        "first": statistics.median(ratios),
        "first_least": ratios[0],
        "first_most": ratios[-1],
        "first_floor": floor,
        "first_limit": limit,
        "first_processes": processes,
    }


def micro() -> list[dict[str, Any]]:
    """Statistics of 16M elements against a plain sum of the same bytes, and CRC-32 against zlib's."""
    binary = ROOT / "build" / "benchmarks" / "stats_benchmark"
    if not binary.exists():
        return []
    wanted = "(plain_sum|statistics)/(fp32|bf16|fp16)(/|$)|checksum/(zlib|crc32)$"
    command = [str(binary), f"--benchmark_filter={wanted}", "--benchmark_format=json", "--benchmark_min_time=0.2"]
    command += ["--benchmark_repetitions=5", "--benchmark_enable_random_interleaving=true"]
    done = subprocess.run(command, text=True, capture_output=True, check=True, timeout=RUN_SECONDS)
    speeds = {
        each["run_name"]: each["bytes_per_second"]
        for each in json.loads(done.stdout)["benchmarks"]
        if each.get("aggregate_name") == "median"
    }
    rows = []
    for name, speed in speeds.items():
        kind, dtype, *level = name.split("/")
        if kind == "statistics":
            ratio = speeds[f"plain_sum/{dtype}"] / speed
            # The sum takes the widest registers there are.
            limit = None if level[0] != "avx512" else 1.25 if dtype == "fp32" else 1.6
            rows.append({"case": f"statistics of 16M elements, {dtype}, {level[0]}", "ratio": ratio, "limit": limit})
            rows[-1] |= {"gigabytes": speed / 1e9, "against": "time of a plain sum of the same bytes"}
    zlib, ours = speeds["checksum/zlib"], speeds["checksum/crc32"]
    rows.append({"case": "CRC-32 of 64 MiB", "ratio": ours / zlib, "limit": 3, "gigabytes": ours / 1e9})
    rows[-1]["against"] = "speed of zlib's, at least"
    return rows


def stopped(ours: bool, turns: int, processes: int) -> dict[str, float]:
    """Steps of processes with a stopped debugger beside those of as many without one, which differ among themselves
    too.
    """
    with tempfile.TemporaryDirectory(prefix="msprobe-bench") as root:
        workers: dict[tuple[str, int], subprocess.Popen[str]] = {}
        for number in range(processes):
            for mode in ("base", "stopped"):
                scratch = Path(root) / f"{mode}{number}"
                scratch.mkdir()
                workers[mode, number] = subprocess.Popen(
                    [str(python(ours)), str(WORKER), "--scratch", str(scratch), "--mode", mode],
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment(ours),
                )
        times: dict[tuple[str, int], list[dict[str, float]]] = {worker: [] for worker in workers}
        for turn in range(turns + 1):
            for worker in workers if turn % 2 else reversed(workers):
                stdin, stdout = workers[worker].stdin, workers[worker].stdout
                assert stdin is not None and stdout is not None
                stdin.write("step\n")
                stdin.flush()
                took = json.loads(stdout.readline())
                if turn > 0:
                    times[worker].append(took)
        for process in workers.values():
            process.communicate()
    steps = {mode: [median(times[mode, number]) for number in range(processes)] for mode in ("base", "stopped")}
    base = statistics.median(steps["base"])
    return {
        "ratio": statistics.median(steps["stopped"]) / base,
        "least": min(steps["base"]) / base,
        "most": max(steps["base"]) / base,
        "processes": processes,
    }


def records(ours: bool, blocks: int, *without: str) -> dict[str, float]:
    arguments = ("--mode", "records", "--blocks", str(blocks), *(f"--no-{part}" for part in without))
    result = work(ours, arguments)
    measured, edge = result["blocks"], min(20, len(result["blocks"]) // 2)
    plain = median(result["plain"], "thread")
    return {
        "us": (median(measured, "thread") - plain) * 1e3,  # of a block of 1,000, in seconds
        "wall_us": (median(measured) - median(result["plain"])) * 1e3,
        "flat": median(measured[-edge:], "thread") / median(measured[:edge], "thread"),
    }


def measure(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    real = python(False).exists() and not options.ours
    if not real:
        console.print("mindstudio-probe is left out" if options.ours else f"no mindstudio-probe at {python(False)}")
    tools = [True, False] if real else [True]
    begun = time.monotonic()
    found: dict[str, Any] = {"rows": [], "machine": machine(), "date": today(), "load": os.getloadavg()[0]}

    def wanted(name: str) -> bool:
        return re.search(options.only, name) is not None

    for case in cases():
        if not wanted(case.name):
            continue
        row: dict[str, Any] = {}
        for ours in tools:
            # With tensors, all CPU is compared to the caller's, which is a small part of a noisy step.
            pairs = options.pairs * (3 if case.tensors else 1) if ours else options.real_pairs
            asked = ["--pairs", str(pairs)]
            if ours:
                asked += ["--max-pairs", str(options.max_pairs), "--aim", str(case.limit)]
            result = row_of(case, work(ours, (*case.arguments, *asked), case.own_server))
            if ours and case.first_limit is not None:
                result |= first_steps(case, options.first_processes)
            result |= memory(case, ours, *((PEAK_STEPS, options.peak_processes) if ours else (4, 1)))
            result["files_cpu_ms"] = 0.0
            if ours and not case.own_server:
                result |= streamed(case, result, 20)
            parts = ("caller", "reading", "rest", "server", "files")
            result["all_cpu_ms"] = sum(result[f"{part}_cpu_ms"] for part in parts)
            result["cpu_ratio"] = result["all_cpu_ms"] / (result["caller_cpu_ms"] + result["reading_cpu_ms"])
            row["ours" if ours else "real"] = result
        found["rows"].append(row)
        console.print(line(row))
    if wanted("stopped"):
        console.print("stopped debugger")
        found["stopped"] = {
            "ours" if ours else "real": stopped(ours, options.pairs, options.stopped_processes) for ours in tools
        }
        console.print(found["stopped"])
    if wanted("record"):
        found["record"] = {
            "ours": records(True, 40),
            "ours, no stacks": records(True, 40, "stacks"),
            "ours, no edges": records(True, 40, "edges"),
        }
        if real:
            found["record"]["real"] = records(False, 3)
        console.print(found["record"])
    if wanted("flat"):
        found["flat"] = records(True, 200)
        console.print(found["flat"])
    if wanted("micro"):
        found["micro"] = micro()
        console.print(found["micro"] or "no build/benchmarks/stats_benchmark: run `make benchmarks`")
    found["seconds"] = time.monotonic() - begun
    return found


def line(row: dict[str, Any]) -> str:
    ours, real = row["ours"], row.get("real")
    theirs = f"{real['ratio']:.2f}" if real else "-"
    return (
        f"{ours['case']}: ours {ours['ratio']:.3f} (CPU of the thread {ours['thread_ratio']:.3f}, limit "
        f"{ours['limit']:.2f}, floor {ours['floor']:.3f}), first {ours['first']:.2f}, real {theirs}, "
        f"plain {ours['plain_ms']:.1f} ms, spread {ours['spread']:.3f}, caller +{ours['caller_cpu_ms']:.1f} ms, all "
        f"+{ours['all_cpu_ms']:.1f} ms CPU (reading threads {ours['reading_cpu_ms']:.1f}, server "
        f"{ours['server_cpu_ms']:.1f}; {ours['cpu_ratio']:.2f} of the caller's and theirs), "
        f"files +{ours['files_cpu_ms']:.1f} ms, +{ours['memory_mib']:.0f} MiB "
        f"({ours['memory_least']:.0f} to {ours['memory_most']:.0f})"
    )


def bold(shown: str, missed: bool) -> str:
    return f"**{shown}**" if missed else shown


def against(value: float, limit: float | None, shown: str) -> str:
    """With its limit, in bold where it is over."""
    return shown if limit is None else bold(f"{shown} of {limit:.4g}", value > limit)


def case_cells(row: dict[str, Any]) -> tuple[str, ...]:
    ours, real = row["ours"], row.get("real")
    first = against(ours["first"], ours["first_limit"], f"{ours['first']:.2f}")
    if "first_floor" in ours:
        first += f" ({ours['first_least']:.2f} to {ours['first_most']:.2f}; floor {ours['first_floor']:.2f})"
    return (
        ours["case"],
        f"{ours['pairs']}" + (f", {real['pairs']}" if real else ""),
        f"{ours['plain_ms']:.1f}",
        f"{ours['spread']:.3f}",
        f"{real['ratio']:.2f}" if real else "",
        against(ours["ratio"], ours["limit"], f"{ours['ratio']:.3f}") + f" ({ours['thread_ratio']:.3f})",
        f"{ours['floor']:.3f}",
        first,
        f"{ours['caller_cpu_ms']:.1f}",
        f"{ours['reading_cpu_ms']:.1f}",
        f"{ours['rest_cpu_ms']:.1f}",
        f"{ours['server_cpu_ms']:.1f}",
        f"{ours['files_cpu_ms']:.1f}" if ours["files_cpu_ms"] else "",
        against(ours["cpu_ratio"], ours["cpu_limit"], f"{ours['cpu_ratio']:.2f}"),
        f"{real['all_cpu_ms']:.0f}" if real else "",
        against(ours["memory_mib"], ours["memory_limit"], f"{ours['memory_mib']:.0f}")
        + f" ({ours['memory_least']:.0f} to {ours['memory_most']:.0f})",
        f"{real['memory_mib']:.0f}" if real else "",
    )


def answer(found: dict[str, Any]) -> str:
    """The rows of ANSWERS that were measured, and the cost of a record."""
    lines = [
        "The time of a captured inference step, as a multiple of the same step without capture:",
        "",
        "| captured | msprobe-agent | mindstudio-probe |",
        "|---|---:|---:|",
    ]
    for row in found["rows"]:
        ours, real = row["ours"], row.get("real")
        if ours["case"] in ANSWERS:
            theirs = f"{real['ratio']:.2f}" if real else ""
            lines.append(f"| {ANSWERS[ours['case']]} | {ours['ratio']:.3f} | {theirs} |")
    record = found.get("record", {})
    if "real" in record:
        lines += [
            "",
            f"A record of 16 elements costs the caller {record['ours']['us']:.1f} us; with mindstudio-probe it costs "
            f"{record['real']['us']:.0f} us.",
        ]
    return "\n".join(lines) + "\n"


def markdown(found: dict[str, Any]) -> str:
    lines = [
        f"Measured on {found['date']} on {found['machine']}, one torch thread, load average {found['load']:.1f} when "
        f"it began; it took {found['seconds'] / 60:.0f} minutes. Ratios are of wall times; those in brackets are of "
        "the caller's CPU time. *x of y*: measured, and its limit; bold where it is missed. First steps: the median of "
        "fresh processes, and their range.",
        "",
        "| case | pairs: ours, theirs | plain ms | plain / plain | mindstudio-probe | ours | floor | first step "
        "| CPU ms a step: caller | reading threads | rest of the process | server | dump.json "
        "| all / caller and reading | mindstudio-probe's CPU ms | MiB added to the peak | mindstudio-probe's MiB |",
        "|" + "---|" * 17,
    ]
    lines += ["| " + " | ".join(case_cells(row)) + " |" for row in found["rows"]]
    lines += ["", "| what | measured | limit |", "|---|---|---|"]
    for name, ratio in found.get("stopped", {}).items():
        processes, bounds = ratio["processes"], f"{ratio['least']:.3f} to {ratio['most']:.3f}"
        shown, missed = f"{ratio['ratio']:.3f}", name == "ours" and ratio["ratio"] > ratio["most"]
        lines.append(
            f"| debugger stopped, {NAMES.get(name, name)}: step's time against a process without, medians of "
            f"{processes} each | {bold(shown, missed)} | within what those without differ by: {bounds} |"
        )
    for name, cost in found.get("record", {}).items():
        measured = bold(f"{cost['us']:.2f}", cost["us"] > RECORD_LIMITS.get(name, math.inf))
        lines.append(
            f"| one record of 16 elements, {NAMES.get(name, name)}: us of the caller's CPU | {measured} "
            f"| {RECORD_LIMITS.get(name, '')} |"
        )
    if "flat" in found:
        flat = found["flat"]["flat"]
        measured = bold(f"{flat:.2f}", flat > FLAT_LIMIT)
        lines.append(f"| 200,000 records in one step: last 20 blocks of 1,000 / first 20 | {measured} | {FLAT_LIMIT} |")
    for row in found.get("micro", []):
        aim = f"{row['limit']:.2f}" if row["limit"] else ""
        measured = bold(f"{row['ratio']:.2f} ({row['gigabytes']:.1f} GB/s)", is_missed(row))
        lines.append(f"| {row['case']}, against the {row['against']} | {measured} | {aim} |")
    return "\n".join(lines) + "\n"


def over(what: str, value: float, limit: float | None) -> list[str]:
    return [f"{what}: {value:.3f}, limit {limit:.3f}"] if limit is not None and value > limit else []


def missed(found: dict[str, Any]) -> list[str]:
    """The limits that were not met, and the floors that are none."""
    short: list[str] = []
    for row in found["rows"]:
        ours, case = row["ours"], row["ours"]["case"]
        short += over(f"{case}, ratio", ours["ratio"], ours["limit"])
        short += over(f"{case}, first step", ours["first"], ours["first_limit"])
        short += over(f"{case}, CPU over the caller's and reading threads'", ours["cpu_ratio"], ours["cpu_limit"])
        short += over(f"{case}, MiB", ours["memory_mib"], ours["memory_limit"])
        for floor, ratio in (("floor", "ratio"), ("first_floor", "first")):
            if floor in ours and ours[floor] > ours[ratio]:
                short.append(f"{case}: the {ratio} of {ours[ratio]:.3f} lies under its floor of {ours[floor]:.3f}")
    if "stopped" in found:
        ours = found["stopped"]["ours"]
        short += over("debugger stopped, ratio", ours["ratio"], ours["most"])
    for name, cost in found.get("record", {}).items():
        short += over(f"a record, {name}, us", cost["us"], RECORD_LIMITS.get(name))
    if "flat" in found:
        short += over("200,000 records, last / first", found["flat"]["flat"], FLAT_LIMIT)
    return short + [f"{row['case']}: {row['ratio']:.2f}" for row in found.get("micro", []) if is_missed(row)]


def is_missed(row: dict[str, Any]) -> bool:
    """Of a microbenchmark."""
    if not row["limit"]:
        return False
    short = row["against"].endswith("at least")
    return bool(row["ratio"] < row["limit"] if short else row["ratio"] > row["limit"])


def table(found: dict[str, Any], console: Console) -> None:
    shown = Table(title="a step's wall time, as a ratio to the plain model's")
    for title in ("case", "plain ms", "real tool", "ours", "limit", "floor", "first", "all CPU +ms", "MiB"):
        shown.add_column(title, justify="left" if title == "case" else "right")
    for row in found["rows"]:
        ours, real = row["ours"], row.get("real")
        shown.add_row(
            *(ours["case"], f"{ours['plain_ms']:.1f}", f"{real['ratio']:.2f}" if real else "-"),
            *(f"{ours['ratio']:.3f}", f"{ours['limit']:.2f}", f"{ours['floor']:.3f}", f"{ours['first']:.2f}"),
            *(f"{ours['all_cpu_ms']:.1f}", f"{ours['memory_mib']:.0f}"),
        )
    console.print(shown)


def write(found: dict[str, Any]) -> None:
    keep("overhead", found)
    document = ROOT / "docs" / "overhead.md"
    text = document.read_text()
    for part, content in zip(PARTS, (answer(found), markdown(found)), strict=True):
        begin, end = f"<!-- {part}: written by tests/bench/overhead.py -->", f"<!-- end of {part} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{content}\n{end}{after}"
    document.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--max-pairs", type=int, default=120, help="where --pairs do not tell whether a limit is met")
    parser.add_argument("--real-pairs", type=int, default=6, help="of mindstudio-probe")
    parser.add_argument("--first-processes", type=int, default=5, help="whose first steps are measured, a row")
    parser.add_argument("--peak-processes", type=int, default=3, help="whose memory is measured, a row")
    parser.add_argument("--stopped-processes", type=int, default=5, help="with a stopped debugger, and as many without")
    parser.add_argument("--quick", action="store_true", help="12 pairs, 2 of mindstudio-probe")
    parser.add_argument(
        "--only", default="", help="a regular expression: these rows; also stopped, record, flat, micro"
    )
    parser.add_argument("--ours", action="store_true", help="without mindstudio-probe")
    parser.add_argument("--write", action="store_true", help="write docs/overhead.md and docs/figures/overhead.json")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.max_pairs, options.real_pairs = 12, 12, 2
        options.first_processes, options.peak_processes, options.stopped_processes = 3, 1, 3
    console = Console(width=160)
    found = measure(options, console)
    table(found, console)
    if options.write:
        write(found)
    if short := missed(found):
        raise SystemExit("overhead: limits are missed\n" + "\n".join(short))


if __name__ == "__main__":
    main()

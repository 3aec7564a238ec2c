"""The generated parts of docs/sizing.md, from the numbers that load.py keeps in docs/figures/load.json."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

from figures import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "sizing.md"
KEPT_B = 40  # bytes on disk of a tensor record that stays, at most: docs/storage_format.md
MAX_SESSIONS = 4096  # --max_sessions
NEEDED = ("ranks64", "ranks256", "small_steps", "payloads_new", "payloads_repeated")

Results = dict[str, dict[str, float]]

ROWS: tuple[tuple[str, Callable[[dict[str, float]], str]], ...] = (
    ("tensor records durable a second", lambda r: f"{r['tensors_a_second']:,.0f}"),
    ("on the wire, bytes a tensor record", lambda r: f"{r['wire_bytes_a_tensor']:.1f}"),
    ("processor time of the server, microseconds a tensor record", lambda r: f"{server_us(r):.2f}"),
    (
        "processor time of agent and load generator together, microseconds a tensor record",
        lambda r: f"{1e6 * r['generator_cpu_seconds'] / r['tensors_emitted']:.2f}",
    ),
    (
        "on disk at the end, rows, tiles and write-ahead log, bytes a tensor record",
        lambda r: f"{r['disk_bytes_a_tensor']:.0f}",
    ),
    ("memory of the server, largest", lambda r: f"{r['server_rss_max_mb']:.0f} MB"),
    (
        "batches",
        lambda r: f"{r['batches_sent']:,.0f} ({r['tensors_emitted'] / r['batches_sent']:,.0f} tensor records each)",
    ),
)


@dataclasses.dataclass(frozen=True)
class Job:
    ranks: int
    tensors: int  # of a captured step
    seconds: float  # between two
    note: str = ""


JOBS = (
    Job(8, 30_000, 1),
    Job(64, 30_000, 5),
    Job(256, 30_000, 5),
    Job(1024, 30_000, 5),
    Job(10_000, 30_000, 5),
    Job(10_000, 30_000, 500, " (a step in a hundred)"),
)


def server_us(run: dict[str, float]) -> float:
    """Processor time of the server for one tensor record."""
    return 1e6 * run["server_cpu_seconds"] / run["tensors_stored"]


def step_us(results: Results) -> float:
    """What a step costs the server beside its records: seen where steps have few."""
    small = results["small_steps"]
    of_records = server_us(results["ranks256"]) * small["tensors_stored"] / 1e6
    return 1e6 * max(0.0, small["server_cpu_seconds"] - of_records) / small["steps_stored"]


def rounded(value: float, digits: int = 2) -> float:
    return float(f"{value:.{digits - 1}e}")


def amount(value: float) -> str:
    """Two digits, and no more zeros than needed."""
    value = rounded(value)
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def bytes_a_second(value: float) -> str:
    return f"{amount(value / 1e9)} GB/s" if value >= 1e9 else f"{amount(value / 1e6)} MB/s"


def measured(kept: dict[str, Any]) -> str:
    results: Results = kept["results"]
    disk = results["ranks64"]
    new, again = results["payloads_new"], results["payloads_repeated"]
    lines = [
        f"On {kept['date']}, on {kept['machine']}, shared by server and load generator; a disk with",
        f"{disk['syncs_a_second']:,.0f} synced 4 KiB writes a second and {disk['sequential_mb_a_second']:,.0f} MB/s "
        "in one piece; `--durability=sync`. Each rank replays",
        f"{disk['tensors_a_step']:,.0f} tensors of a recorded training step with statistics and checksum for "
        f"{disk['emitting_seconds']:.0f} seconds, as fast as the server",
        "lets it. Meanwhile steps become tiles in the background, which costs processor time and saves disk.",
        "",
        "| measured | 64 ranks | 256 ranks |",
        "|---|---:|---:|",
    ]
    lines += [f"| {what} | {shown(results['ranks64'])} | {shown(results['ranks256'])} |" for what, shown in ROWS]
    gigabytes = new["payload_bytes"] / 1e9
    lines += [
        "",
        f"New payloads ({new['ranks']:.0f} ranks, 1 MiB each): {gigabytes:.1f} GB in {new['seconds']:.1f} s with "
        f"draining, {new['payload_mb_a_second']:.0f} MB/s,",
        f"{new['server_cpu_seconds'] / gigabytes:.1f} seconds of the server's processor time a GB. Repeated ones: "
        f"{again['payload_bytes'] / (1 << 20):.0f} MiB stored, {again['wire_bytes_a_tensor']:.0f} bytes on the wire",
        "a tensor record, all else included.",
        "",
        f"Steps of few records cost by the step: {step_us(results):.0f} microseconds of the server's processor time "
        "each, beside that of",
        f"their records ({results['small_steps']['ranks']:.0f} ranks, "
        f"{results['small_steps']['tensors_a_step']:.0f} tensor records a step).",
    ]
    return "\n".join(lines)


def computed(kept: dict[str, Any]) -> str:
    results: Results = kept["results"]
    most = results["ranks256"]
    wire = math.ceil(most["wire_bytes_a_tensor"])
    comes = math.ceil(most["disk_bytes_a_tensor"])
    record, step = rounded(server_us(most)), rounded(step_us(results))
    half = rounded(most["tensors_a_second"] / 2)
    lines = [
        "    rate      = R x M / T                         tensor records a second",
        f"    network   = rate x {wire} B                       into the server",
        f"    disk      = rate x {comes} B as it comes; 25 to {KEPT_B} B after tiling (storage_format.md)",
        f"    server    = rate x {record:g} us + R / T x {step:g} us    processor seconds a second: cores",
        f"    servers   = rate / {half:,.0f}                    half the rate of 256 ranks on this machine, server and "
        "load together",
        f"    sessions  = R / servers                       --max_sessions, {MAX_SESSIONS:,} by default",
        "",
        f"| ranks | captured | rate | network | disk a day, {KEPT_B} B | server cores | servers |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for job in JOBS:
        rate = job.ranks * job.tensors / job.seconds
        cores = (rate * record + job.ranks / job.seconds * step) / 1e6
        servers, of_sessions = math.ceil(rate / half), math.ceil(job.ranks / MAX_SESSIONS)
        count = f"{of_sessions}, for the sessions" if of_sessions > servers else f"{servers}"
        lines.append(
            f"| {job.ranks:,} | {job.tensors:,} every {job.seconds:g} s{job.note} | {amount(rate / 1e6)} M/s | "
            f"{bytes_a_second(rate * wire)} | {amount(rate * KEPT_B * 86400 / 1e12)} TB | {amount(cores)} | {count} |"
        )
    return "\n".join(lines)


PARTS = {"measured": measured, "computed": computed}


def part(text: str, name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", text, re.DOTALL)
    if not found:
        raise ValueError(f"docs/sizing.md has no part {name}")
    return found[1]


def with_figures(text: str, kept: dict[str, Any]) -> str:
    """The page with its generated parts from these figures."""
    for name, write in PARTS.items():
        text = text.replace(part(text, name), write(kept))
    return text


def write(kept: dict[str, Any]) -> None:
    PAGE.write_text(with_figures(PAGE.read_text(), kept))

"""The limits of a server, each with the number measured by load.py or by a microbenchmark."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "build" / "benchmarks"
PATIENCE_S = 300

Results = dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Limit:
    what: str
    limit: str
    value: Callable[[Results], float]  # KeyError: it was not measured
    form: str
    holds: Callable[[float], bool]


def micro(binary: str, pattern: str) -> dict[str, dict[str, Any]]:
    """Rows of a Google Benchmark binary by name; none if it is not built."""
    path = BENCHMARKS / binary
    if not path.exists():
        return {}
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:  # on stdout the server's log is between the lines
        flags = [f"--benchmark_filter={pattern}", f"--benchmark_out={out.name}", "--benchmark_min_time=0.2"]
        subprocess.run([path, *flags], capture_output=True, timeout=PATIENCE_S, check=True)
        return {row["name"].split("/iterations")[0]: row for row in json.load(out)["benchmarks"]}


def measure_parts() -> dict[str, float]:
    """About two minutes."""
    found: dict[str, float] = {}
    for name, row in micro("store_read_benchmark", "DiskBytes|ReadBlocks.*tiled:1").items():
        if name.startswith("DiskBytes"):
            found["disk_bytes_varying" if name.endswith(":1") else "disk_bytes"] = row["bytes_a_tensor"]
        else:
            found["step_ms"] = row["real_time"]
    payloads = micro("ingest_apply_benchmark", "Payloads")
    rates = {name.split("session:")[1][0]: row["bytes_per_second"] for name, row in payloads.items()}
    if len(rates) == 2:
        found["payload_ratio"] = rates["1"] / rates["0"]
    for row in micro("trend_benchmark", "OneTensor").values():
        found["trend_ms"] = row["real_time"]
    return found


def ready_after(command: list[str], socket: Path, log: Path) -> tuple[float, subprocess.Popen[bytes]]:
    """Seconds until a server takes connections, and the server."""
    begun = time.monotonic()
    with log.open("ab") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    while not socket.exists():
        if server.poll() is not None or time.monotonic() - begun > PATIENCE_S:
            raise SystemExit(f"load: the server did not start: {log.read_text()[-2000:]}")
        time.sleep(0.005)  # between two looks at whether it listens
    return time.monotonic() - begun, server


def measure_starts(command: list[str], directory: Path) -> dict[str, float]:
    """Starts a server on the store in `directory` after a kill, and after a clean stop."""
    socket, log = directory / "s", directory / "log"
    found = {}
    for name in ("start_killed_s", "start_clean_s"):
        found[name], server = ready_after(command, socket, log)
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)
        socket.unlink(missing_ok=True)
    return found


LIMITS = (
    Limit(
        "tensor records durable a second, 64 ranks, statistics and checksum",
        ">= 1,000,000",
        lambda r: r["ranks64"]["tensors_a_second"],
        "{:,.0f}",
        lambda value: value >= 1e6,
    ),
    Limit(
        "bytes on disk a tensor record, 1,000 steps of 1,000 tensors, tiled",
        "<= 40",
        lambda r: r["parts"]["disk_bytes"],
        "{:.1f}",
        lambda value: value <= 40,
    ),
    Limit(
        "the same with other shapes each step",
        "-",
        lambda r: r["parts"]["disk_bytes_varying"],
        "{:.1f}",
        lambda _: True,
    ),
    Limit(
        "new payloads: rate of a session over that of the store's own writes",
        ">= 0.8",
        lambda r: r["parts"]["payload_ratio"],
        "{:.2f}",
        lambda value: value >= 0.8,
    ),
    Limit(
        "repeated payloads: bytes stored over bytes of one copy of each",
        "1",
        lambda r: r["payloads_repeated"]["payload_bytes"] / (r["payloads_repeated"]["ranks"] * (1 << 20)),
        "{:.2f}",
        lambda value: value <= 1,
    ),
    Limit(
        "a step of one rank, 30,000 tensor records, read back, ms",
        "<= 50",
        lambda r: r["parts"]["step_ms"],
        "{:.0f}",
        lambda value: value <= 50,
    ),
    Limit(
        "one tensor over 10,000 steps of 8 ranks, ms",
        "<= 200",
        lambda r: r["parts"]["trend_ms"],
        "{:.0f}",
        lambda value: value <= 200,
    ),
    Limit(
        "point read while 64 ranks send as fast as they can, p99, ms",
        "<= 10",
        lambda r: r["reads64"]["read_p99_ms"],
        "{:.1f}",
        lambda value: value <= 10,
    ),
    Limit(
        "memory of the server under twice what it takes, policy stall, MB",
        "<= 1,074",
        lambda r: r["overload_stall"]["server_rss_max_mb"],
        "{:.0f}",
        lambda value: value <= 1074,
    ),
    Limit(
        "dropped meanwhile",
        "0",
        lambda r: r["overload_stall"]["tensors_dropped"],
        "{:,.0f}",
        lambda value: value == 0,
    ),
    Limit(
        "ready on a store of many small steps after a clean stop, s",
        "<= 2",
        lambda r: r["small_steps"]["start_clean_s"],
        "{:.2f}",
        lambda value: value <= 2,
    ),
    Limit(
        "the same after kill -9, s",
        "<= 2",
        lambda r: r["small_steps"]["start_killed_s"],
        "{:.2f}",
        lambda value: value <= 2,
    ),
)


def limits_table(results: Results) -> str:
    lines = ["| what | limit | measured | |", "|---|---:|---:|---|"]
    for limit in LIMITS:
        try:
            value = limit.value(results)
        except KeyError:
            lines.append(f"| {limit.what} | {limit.limit} | - | not measured |")
            continue
        lines.append(
            f"| {limit.what} | {limit.limit} | {limit.form.format(value)} | {'' if limit.holds(value) else 'missed'} |"
        )
    return "\n".join(lines)


def missed_limits(results: Results) -> list[str]:
    """What was measured and does not hold."""
    missed = []
    for limit in LIMITS:
        try:
            value = limit.value(results)
        except KeyError:
            continue
        if not limit.holds(value):
            missed.append(f"{limit.what}: {limit.form.format(value)}, limit {limit.limit}")
    return missed


def busy() -> str:
    """The machine's load just before, in words."""
    return f"{os.getloadavg()[0]:.1f}"

#!/usr/bin/env python3
"""Load of many ranks on one server, both on this machine: sent, stored and dropped records, and their cost.

load.py                       every scenario and the parts that have limits, about six minutes; prints the tables
load.py --write               and writes docs/figures/load.json, docs/load.md and the figures of docs/sizing.md
load.py --only ranks64        one of them (may be given several times); --list names them
load.py --seconds 5           how long each emits (8 s; overload: --overload-seconds, 40 s)
load.py --server-flag X       one more flag of the server (may be given several times)

Server and load share the machine's cores, so each number is for both together. Beside them stand the physical limits of
the disk, measured just before: synced 4 KiB writes a second and MB/s of a synced sequential write.

It ends with 1 where a measured limit is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import sizing
from figures import keep, machine, today
from load_limits import busy, limits_table, measure_parts, measure_starts, missed_limits

ROOT = Path(__file__).resolve().parents[2]

REFERENCE = Path(os.environ.get("MSPROBE_REFERENCE", ROOT.parent / "shared" / "reference"))
DUMP = REFERENCE / "dump" / "train_statistics_mix" / "step0" / "proc0"
GENERATOR = ROOT / "build" / "tests" / "bench" / "load_generator"
SAMPLE_S = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
SERVER_S = 60
DRAIN_S = 180
# --memory_limit of the server: its default, 1 GiB.
MEMORY_LIMIT_MB = (1 << 30) / 1e6

# Rows of docs/load.md: key, heading, how it is printed.
COLUMNS = (
    ("tensors_emitted", "sent", "{:,}"),
    ("tensors_stored", "stored", "{:,}"),
    ("tensors_dropped", "dropped", "{:,}"),
    ("tensors_a_second", "durable/s", "{:,.0f}"),
    ("ack_p50_ms", "ack p50 ms", "{:.0f}"),
    ("ack_p99_ms", "ack p99 ms", "{:.0f}"),
    ("server_cpu_average", "server CPU avg %", "{:.0f}"),
    ("server_cpu_max", "max %", "{:.0f}"),
    ("generator_cpu_average", "load CPU avg %", "{:.0f}"),
    ("server_rss_average_mb", "server RSS avg MB", "{:.0f}"),
    ("server_rss_max_mb", "max MB", "{:.0f}"),
    ("wire_bytes_a_tensor", "wire B/tensor", "{:.1f}"),
    ("payload_mb_a_second", "payload MB/s", "{:.0f}"),
    ("read_p50_ms", "read p50 ms", "{:.1f}"),
    ("read_p99_ms", "read p99 ms", "{:.1f}"),
    ("longest_step_emit_seconds", "longest hold s", "{:.2f}"),
)


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    ranks: int
    flags: tuple[str, ...] = ()
    overload: float = 0.0  # times the rate of `ranks64`; 0: as fast as the server takes
    long: bool = False  # emits for --overload-seconds
    starts: bool = False  # then the server is started again, after a clean stop and after kill -9


SCENARIOS = (
    Scenario("ranks64", "64 ranks, statistics and checksum", 64),
    Scenario("shapes64", "64 ranks, another token count each step", 64, ("--varying_shapes=true",)),
    Scenario("ranks256", "256 ranks", 256, ("--memory_mb=4",)),
    Scenario("reads64", "64 ranks, and 50 point reads a second", 64, ("--reads=50",)),
    Scenario("reads64_idle", "the same, the ranks at SCHED_IDLE", 64, ("--reads=50", "--idle=true")),
    Scenario("half64", "64 ranks, at half of what `ranks64` reached", 64, overload=0.5),
    Scenario("overload_stall", "64 ranks at twice that, policy stall", 64, ("--policy=stall",), 2.0, True),
    Scenario("overload_drop", "64 ranks at twice that, policy drop", 64, ("--policy=drop", "--memory_mb=2"), 2.0, True),
    Scenario("payloads_new", "8 ranks, payloads of 1 MiB, each new", 8, ("--payload_bytes=1048576", "--memory_mb=64")),
    Scenario(
        "payloads_repeated",
        "8 ranks, payloads of 1 MiB, the same again",
        8,
        ("--payload_bytes=1048576", "--repeated_payloads=true", "--memory_mb=64"),
    ),
    Scenario("small_steps", "64 ranks, steps of 5 records", 64, ("--records=5",), starts=True),
)


class Usage:
    """CPU and memory of one process, sampled from /proc while the block runs."""

    def __init__(self, process_id: int) -> None:
        self._stat = Path(f"/proc/{process_id}/stat")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.cpu: list[float] = []  # per cent of one core, a sample
        self.rss: list[float] = []  # MB
        self.cpu_seconds = 0.0

    def _read(self) -> tuple[float, float]:
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * resource.getpagesize() / 1e6

    def _sample(self) -> None:
        before, at = self._read()[0], time.monotonic()
        first = before
        while not self._stop.wait(SAMPLE_S):
            try:
                cpu, rss = self._read()
            except OSError:
                return
            now = time.monotonic()
            self.cpu.append(100 * (cpu - before) / (now - at))
            self.rss.append(rss)
            before, at = cpu, now
            self.cpu_seconds = cpu - first

    def __enter__(self) -> Usage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def average(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def disk_limits(directory: Path) -> dict[str, float]:
    path = directory / "disk_limit"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        block, writes, start = os.urandom(4096), 0, time.monotonic()
        while time.monotonic() - start < 1:
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            writes += 1
        syncs = writes / (time.monotonic() - start)
        block, start = os.urandom(1 << 20), time.monotonic()
        for _ in range(256):
            os.write(descriptor, block)
        os.fdatasync(descriptor)
        return {"syncs_a_second": syncs, "sequential_mb_a_second": 256 * 1.048576 / (time.monotonic() - start)}
    finally:
        os.close(descriptor)
        path.unlink()


def stored(address: str, run: str) -> tuple[int, int, int, int]:
    """Tensors, lost fragments, payload bytes and steps of ranks of the run, as the server answers."""
    from msprobe_client.client import Client

    with Client(address) as client:
        steps = client.steps(run)
        summary = next(item for item in client.runs() if item.run == run)
    lost = sum(gap.fragments for step in steps for gap in step.gaps)
    return sum(step.tensors for step in steps), lost, summary.payload_bytes, len(steps)


def server_binary() -> str:
    return os.environ.get("MSPROBE_SERVER_BINARY") or str(ROOT / "build" / "server" / "msprobe-server")


def measure(scenario: Scenario, options: argparse.Namespace, reached: float) -> dict[str, float]:
    directory = Path(tempfile.mkdtemp(prefix="msload", dir=options.directory))
    address = f"unix:{directory}/s"
    command = [server_binary(), f"--listen={address}", f"--data_dir={directory}/data", *options.server_flag]
    seconds = options.overload_seconds if scenario.long else options.seconds
    try:
        limits = disk_limits(directory)
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + SERVER_S
            while not (directory / "s").exists():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"load: the server did not start: {(directory / 'log').read_text()[-2000:]}")
                time.sleep(0.02)  # between two looks at whether it listens
            load = [
                *(str(GENERATOR), f"--server={address}", f"--dump={DUMP}", f"--ranks={scenario.ranks}"),
                *(f"--seconds={seconds}", f"--spool={directory}/spool", f"--drain={DRAIN_S}", *scenario.flags),
                *((f"--rate={scenario.overload * reached}",) if scenario.overload else ()),
            ]
            with Usage(server.pid) as usage:
                done = subprocess.run(load, capture_output=True, text=True, timeout=seconds + 2 * DRAIN_S)
            if done.returncode != 0:
                raise SystemExit(f"load: {scenario.name} ended with {done.returncode}\n{done.stderr[-2000:]}")
            found = json.loads(done.stdout.splitlines()[-1])  # after lines of the agent, if any
            tensors, lost, payload_bytes, steps = stored(address, "load")
            size = sum(path.stat().st_size for path in (directory / "data").rglob("*") if path.is_file())
        finally:
            server.send_signal(signal.SIGKILL if scenario.starts else signal.SIGTERM)
            try:
                server.wait(SERVER_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        (directory / "s").unlink(missing_ok=True)
        starts = measure_starts(command, directory) if scenario.starts else {}
        return {
            **starts,
            **found,
            **limits,
            "tensors_stored": tensors,
            "steps_stored": steps,
            "payload_bytes": payload_bytes,
            "tensors_dropped": found["tensors_emitted"] - tensors,
            "fragments_in_gaps": lost,
            "tensors_a_second": tensors / found["seconds"],
            "payload_mb_a_second": payload_bytes / 1e6 / found["seconds"],
            "disk_bytes": size,
            "disk_bytes_a_tensor": size / max(tensors, 1),
            "wire_bytes_a_tensor": found["bytes_sent"] / max(found["tensors_emitted"], 1),
            "server_cpu_seconds": usage.cpu_seconds,
            "server_cpu_average": average(usage.cpu),
            "server_cpu_max": max(usage.cpu, default=0.0),
            "server_rss_average_mb": average(usage.rss),
            "server_rss_max_mb": max(usage.rss, default=0.0),
            "generator_cpu_average": 100 * found["generator_cpu_seconds"] / found["seconds"],
        }
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def table(results: dict[str, dict[str, float]]) -> str:
    names = [scenario for scenario in SCENARIOS if scenario.name in results]
    lines = [
        "| | " + " | ".join(heading for _, heading, _ in COLUMNS) + " |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for scenario in names:
        found = results[scenario.name]
        cells = (
            "-" if key.startswith("read_") and not found["read_samples"] else form.format(found[key])
            for key, _, form in COLUMNS
        )
        lines.append(f"| {scenario.what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def document(results: dict[str, dict[str, float]], cores: int, before: str) -> str:
    first = next(iter(results.values()))
    small = results.get("small_steps", {})
    return f"""# Load

This page shows the load that one server takes. `tests/bench/load.py --write` writes it (a part of `make bench`), and
its numbers to [figures/load.json](figures/load.json). Measured on {today()} on {machine()}.

The load generator has the agent's own transport; server and load share the machine's {cores} cores. Each rank
replays one training step of a small Qwen2, recorded with mindstudio-probe ({first["tensors_a_step"]} tensors in API
calls and modules, forward and backward), with other numbers every time, and asks for durability that survives
power loss. A tensor counts when the server has said that it is durable. 100 % CPU is one core.

- `ack` runs from handing a batch to the transport until the sender knows that it is durable. Without a rate limit a
  sender always has a full queue, so `ack` measures the queue.
- `longest hold` is the longest time that one rank took to emit one step. It contains every wait of the loss policy.
- `read` is a call for one record of one step of one rank, from a process of its own, as a client would make it, while
  the ranks emit as fast as they are let. Its limit is for ranks of ordinary priority. Ranks at SCHED_IDLE compute only
  where nobody else wants to: that shows a read's time if a job's ranks do not compute on the server's cores.

Of the disk just before the first run: {first["syncs_a_second"]:,.0f} synced writes of 4 KiB a second,
{first["sequential_mb_a_second"]:,.0f} MB/s written and synced in one piece. Load average before: {before}.

## Limits

{limits_table(results)}

Payload rates, bytes on disk, reading a step and one tensor are microbenchmarks (`build/benchmarks`), without a
network between. The starts are on a store of {small.get("steps_stored", 0):,.0f} steps of ranks,
{small.get("disk_bytes", 0) / 1e6:,.0f} MB: 100 GB of steps of that size, scaled down to what some seconds write.

## Runs

{table(results)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[scenario.name for scenario in SCENARIOS])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--overload-seconds", type=float, default=40)
    parser.add_argument("--server-flag", action="append", default=[])
    parser.add_argument("--directory", help="where data directories are made (default: the temporary directory)")
    parser.add_argument("--rate", type=float, help="what ranks64 reached, where it is not run")
    options = parser.parse_args()
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:<18} {scenario.what}")
        return
    if not DUMP.is_dir():
        raise SystemExit(f"load: no recorded dump at {DUMP}: set MSPROBE_REFERENCE")
    results: dict[str, dict[str, float]] = {}
    reached = options.rate or 0.0
    before = busy()
    for scenario in SCENARIOS:
        if options.only and scenario.name not in options.only:
            continue
        if scenario.overload and not reached:
            raise SystemExit(f"load: {scenario.name} needs ranks64, or --rate")
        results[scenario.name] = measure(scenario, options, reached)
        if scenario.name == "ranks64":
            reached = options.rate or results[scenario.name]["tensors_a_second"]
        print(json.dumps({scenario.name: results[scenario.name]}), file=sys.stderr, flush=True)
    short = [name for name, each in results.items() if each["tensors_dropped"] and "drop" not in name]
    large = [name for name, each in results.items() if each["server_rss_max_mb"] > MEMORY_LIMIT_MB]
    failed = [name for name, each in results.items() if each["reads_failed"]]
    undrained = [name for name, each in results.items() if each["undrained_ranks"]]
    if not options.only:
        results["parts"] = measure_parts()
        print(limits_table(results))
    print(table(results))
    if options.write:
        kept = keep("load", results)
        (ROOT / "docs" / "load.md").write_text(document(results, os.cpu_count() or 1, before))
        if all(name in results for name in sizing.NEEDED):
            sizing.write(kept)
    if large:
        raise SystemExit(
            f"load: the server took more memory than it may ({MEMORY_LIMIT_MB:.0f} MB): {', '.join(large)}"
        )
    if failed:
        raise SystemExit(f"load: some reads failed: {', '.join(failed)}")
    if short or undrained:
        raise SystemExit(f"load: lost without being asked to: {', '.join(short) or 'not drained in time'}")
    if missed := missed_limits(results):
        raise SystemExit("load: limits are missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()

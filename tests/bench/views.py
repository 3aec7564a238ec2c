"""Measures graph databases beside mindstudio-probe: wall and CPU time, memory of the process tree, size of the file.

    .venv/bin/python tests/bench/views.py          # the real tool too
    .venv/bin/python tests/bench/views.py --ours   # without it

Needs the recorded pair (MSPROBE_REFERENCE), and for the real tool its environment (`make oracle`, or MSPROBE_ORACLE).
A row over its limit ends the script with 1. --write keeps the results in docs/figures/views.json and
docs/views.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare import MIB, REPOSITORY, await_rest, measure, processor_seconds, proportional_kib, running_on
from compare_pairs import repeat_pair
from figures import keep, put_table
from stream_run import Plan, drawn, stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe_client.client import Client

COPIES = 181  # of the recorded pair: 30,046 entries a side
MB = 1e6
# Case -> seconds, MiB, MB of the file; none: no limit.
LIMITS: dict[str, tuple[float, float | None, float | None]] = {
    "directories": (1.5, 150, 90),
    "runs": (0.7, None, 90),
    "many": (20.0, None, None),
}
FLAT = 1.5  # memory for ten times the steps, at most


def databases(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.glob("*.vis.db")) / MB


def of_directories(root: Path, oracle: Path | None, repeat: int) -> dict[str, Any]:
    entries = repeat_pair(reference(), root / "pair", COPIES, modules=True)
    sides = ["-tp", str(root / "pair/target/step0"), "-gp", str(root / "pair/golden/step0")]
    ours = [sys.executable, "-c", "from msprobe_client.compat.legacy import main; main()"]
    found: dict[str, Any] = {"what": f"two directories of {entries:,} entries each"}
    tools = [("ours", ours, repeat)] + ([("real", [str(oracle / "bin" / "msprobe")], 1)] if oracle else [])
    for tool, command, times in tools:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH" or tool == "ours"}
        costs = []
        for number in range(times):
            out = root / f"{tool}{number}"
            costs.append(measure([*command, "graph_visualize", *sides, "-o", str(out)], environment))
            assert costs[-1].code == 0, f"{tool} failed"
            megabytes = databases(out)
        best = min(costs, key=lambda cost: cost.wall)
        found[tool] = {"wall": best.wall, "cpu": best.cpu, "peak_mib": best.peak_mib, "mb": megabytes}
    return found


def reference() -> Path:
    return Path(os.environ.get("MSPROBE_REFERENCE", REPOSITORY.parent / "shared" / "reference")) / "compare"


class Peak:
    """The most memory that processes had while the block ran, and what they held before, in MiB."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.held = sum(map(proportional_kib, pids)) / MIB
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.mib = 0.0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.02):  # between two looks
            self.mib = max(self.mib, sum(map(proportional_kib, self._pids)) / MIB)


def asked(data: Path, out: Path, ask: Callable[[Path], object], repeat: int) -> dict[str, float]:
    """Of a server that runs already."""
    out.mkdir()
    pids = running_on(data)
    before, walls = processor_seconds(pids), []
    with Peak(pids) as peak:
        for _ in range(repeat):
            begun = time.monotonic()
            ask(out / "a.vis.db")
            walls.append(time.monotonic() - begun)
    spent = (processor_seconds(pids) - before) / repeat
    added = max(0.0, peak.mib - peak.held)
    return {"wall": min(walls), "cpu": spent, "peak_mib": peak.mib, "added_mib": added, "mb": databases(out)}


def of_runs(client: Client, root: Path, repeat: int) -> dict[str, Any]:
    for side in ("target", "golden"):
        client.import_dump(root / "pair" / side, side)
    await_rest(root / "data")
    cost = asked(root / "data", root / "runs", lambda file: client.graph("run:target", file, "run:golden"), repeat)
    return {"what": "the same, of runs in a store", "ours": cost}


def of_many(client: Client, root: Path) -> list[dict[str, Any]]:
    rows = []
    for steps in (10, 100):
        run = f"run{steps}"
        stream(client.address, run, Plan(8, steps, 3000, drawn()))
        await_rest(root / "data")
        cost = asked(root / "data", root / run, lambda file, run=run: client.graph(f"run:{run}", file), 1)  # type: ignore[misc]
        rows.append({"what": f"one run of 8 ranks x {steps} steps x 3,000 records", "ours": cost})
    return rows


def over(name: str, cost: dict[str, float]) -> bool:
    pairs = zip((cost["wall"], cost["peak_mib"], cost["mb"]), LIMITS[name], strict=True)
    return any(limit is not None and value > limit for value, limit in pairs)


def added(cost: dict[str, float]) -> str:
    return f", {cost['added_mib']:,.0f} of it for this" if "added_mib" in cost else ""


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| graph of | | seconds | of processors | memory | file |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        for tool, name in (("ours", "msprobe-server"), ("real", "mindstudio-probe")):
            if tool in row:
                cost = row[tool]
                memory = f"{cost['peak_mib']:,.0f} MiB{added(cost)}"
                figures = f"{cost['wall']:.2f} | {cost['cpu']:.2f} | {memory} | {cost['mb']:,.0f} MB"
                lines.append(f"| {row['what'] if tool == 'ours' else ''} | {name} | {figures} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", action="store_true", help="do not run the real tool")
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours; the fastest counts")
    parser.add_argument("--write", action="store_true", help="write docs/views.md and docs/figures/views.json")
    options = parser.parse_args()
    from msprobe_client.client import Client

    oracle = Path(os.environ.get("MSPROBE_ORACLE", REPOSITORY / ".oracle"))
    real = oracle if (oracle / "bin" / "msprobe").exists() and not options.ours else None
    root = Path(tempfile.mkdtemp(prefix="msprobe_bench_"))
    try:
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        rows = [of_directories(root, real, options.repeat)]
        with Client(data_dir=root / "data", create=True) as client:
            rows += [of_runs(client, root, options.repeat), *of_many(client, root)]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(table(rows))
    pairs, runs, few, many = (row["ours"] for row in rows)
    wrong = [name for name, cost in zip(LIMITS, (pairs, runs, many), strict=True) if over(name, cost)]
    if many["peak_mib"] > FLAT * few["peak_mib"]:
        wrong.append("memory for ten times the steps")
    if wrong:
        print(f"over the limit: {', '.join(wrong)} (load {os.getloadavg()[0]:.1f})")
    if options.write:
        kept = keep("views", rows)
        head = f"`tests/bench/views.py`, {kept['date']}, on {kept['machine']}; memory is of client and server:"
        put_table("views.md", "views.py", f"{head}\n\n{table(rows)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

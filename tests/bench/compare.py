"""Measures comparisons beside mindstudio-probe: wall time, CPU time and peak memory of the whole process tree.

    .venv/bin/python tests/bench/compare.py                # everything, the real tool too (four minutes)
    .venv/bin/python tests/bench/compare.py --ours         # without it
    .venv/bin/python tests/bench/compare.py --only help,3k

Needs the recorded pair (MSPROBE_REFERENCE), and for the real tool its environment (`make oracle`, or MSPROBE_ORACLE).
A row over its limit ends the script with 1. --write keeps the results in docs/figures/compare.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compare_pairs import repeat_pair
from figures import keep

if TYPE_CHECKING:
    from msprobe_client.client import Client

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MIB = 1024
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True)
class Cost:
    wall: float
    cpu: float
    peak_mib: float
    code: int


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    ours: list[str]
    theirs: list[str] | None
    wall_limit: float
    peak_limit: float


def children(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        for task in pathlib.Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def proportional_kib(pid: int) -> int:
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def measure(command: list[str], environment: dict[str, str]) -> Cost:
    """Runs to the end; memory is the proportional set size of the tree, sampled."""
    before = os.times()
    begun = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(proportional_kib(pid) for pid in children(process.pid)))
        time.sleep(0.02)  # between two looks at how much memory it has
    wall = time.monotonic() - begun
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall, cpu, peak / MIB, process.returncode)


def tensor_pair(root: pathlib.Path, files: int = 1286, mebibytes: int = 450) -> None:
    """Tensor files of both sides; the first half of them are equal."""
    import numpy

    draw = numpy.random.default_rng(1)
    average = mebibytes * MIB * MIB // 4 // files
    data: dict[str, dict[str, list[dict[str, object]]]] = {}
    for side in ("target", "golden"):
        (root / side / "step0" / "rank0" / "dump_tensor_data").mkdir(parents=True)
    for index in range(files):
        count = int(average * (0.1 + 0.2 * (index % 10)))
        golden = draw.standard_normal(count, dtype=numpy.float32)
        target = golden if index < files // 2 else golden + numpy.float32(1e-4) * draw.standard_normal(count, "f")
        name = f"Functional.op.{index // 2}.forward"
        way = "input" if index % 2 == 0 else "output"
        file = f"{name}.{way}.0.npy"
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [count], "requires_grad": False}
        leaf |= {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 1.0, "data_name": file}
        entry = data.setdefault(name, {"input_args": [], "output": []})
        entry["input_args" if way == "input" else "output"].append(leaf)
        for side, value in (("target", target), ("golden", golden)):
            numpy.save(root / side / "step0" / "rank0" / "dump_tensor_data" / file, value)
    for side in ("target", "golden"):
        dump = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}
        (root / side / "step0" / "rank0" / "dump.json").write_text(json.dumps(dump))


def torch_files(root: pathlib.Path) -> None:
    """The .npy of a pair as .pt, the form that mindstudio-probe reads."""
    import numpy
    import torch

    for file in root.rglob("*.npy"):
        torch.save(torch.from_numpy(numpy.load(file)), file.with_suffix(".pt"))
        file.unlink()
    for dump in root.rglob("dump.json"):
        dump.write_text(dump.read_text().replace('.npy"', '.pt"'))


def cases(root: pathlib.Path, oracle: pathlib.Path | None, wanted: Callable[[str], bool]) -> list[Case]:
    reference = (
        pathlib.Path(os.environ.get("MSPROBE_REFERENCE", REPOSITORY.parent / "shared" / "reference")) / "compare"
    )
    ours = [sys.executable, "-c", "from msprobe_client.compat.legacy import main; main()", "compare"]
    client = [sys.executable, "-m", "msprobe_client"]
    theirs = [str(oracle / "bin" / "msprobe"), "compare"] if oracle else None
    found = []

    def add(name: str, what: str, arguments: list[str], limits: tuple[float, float], real: bool = True) -> None:
        out = ["-o", str(root / "out" / name)] if arguments[0] != "-h" else []
        real_out = ["-o", str(root / "real" / name)] if out else []
        command = [*theirs, *arguments, *real_out] if theirs and real else None
        found.append(Case(name, what, [*ours, *arguments, *out], command, *limits))

    def sides(name: str) -> list[str]:
        return ["-tp", str(root / name / "target" / "step0"), "-gp", str(root / name / "golden" / "step0")]

    if wanted("help"):
        add("help", "msprobe compare -h", ["-h"], (0.3, 60))
        found.append(Case("client", "msprobe-client --help", [*client, "--help"], None, 0.3, 60))
        found.append(Case("client", "msprobe-client compare -h", [*client, "compare", "-h"], None, 0.3, 60))
    if wanted("3k"):
        entries = repeat_pair(reference, root / "3k", 19)
        add("3k", f"{entries} entries to csv", sides("3k"), (0.5, 200))
    if wanted("30k") or wanted("fuzzy") or wanted("runs"):
        entries = repeat_pair(reference, root / "30k", 186)
    if wanted("30k") or wanted("fuzzy"):
        add("30k", f"{entries} entries to csv", sides("30k"), (1.0, 200))
    if wanted("fuzzy"):
        # Its limit is twice what "30k" took. The real tool is quadratic: it gets a tenth of the entries.
        repeat_pair(reference, root / "shifted", 186, shifted=True)
        add("fuzzy", f"{entries} entries shifted, -fm", [*sides("shifted"), "-fm"], (math.inf, 200), real=False)
        tenth = repeat_pair(reference, root / "shifted3k", 19, shifted=True)
        add("fuzzy3k", f"{tenth} entries shifted, -fm", [*sides("shifted3k"), "-fm"], (1.0, 200))
    if wanted("tensor"):
        tensor_pair(root / "tensor")
        torch_files(root / "tensor")
        add("tensor", "tensor files, 2 x 450 MiB", sides("tensor"), (2.0, 200))
    return found


@dataclass(frozen=True)
class Question:
    name: str
    what: str
    ask: Callable[[], object]
    wall_limit: float


def questions(client: Client, root: pathlib.Path, wanted: Callable[[str], bool]) -> Iterator[Question]:
    """Questions to a server that has the runs: wall time of the answer alone, without the server's start."""
    from stream_run import Plan, drawn, stream

    if wanted("runs"):
        for side in ("target", "golden"):
            client.import_dump(root / "30k" / side, side)
        await_rest(root / "data")

        def compare() -> object:
            return list(client.compare("run:target", "run:golden", limit=100))

        asked = itertools.count()

        def table() -> object:  # a new file each time, as the command names them by the time of day
            name = f"table_{next(asked)}.csv"
            return list(client.compare_tables("run:target", "run:golden", root / "out", file_name=lambda chunk: name))

        yield Question("runs", "30,000-entry pair, verdicts", compare, 0.1)
        yield Question("runs", "30,000-entry pair, csv", table, 0.1)
    if wanted("divergence"):
        ranks, steps, records = 8, 100, 3000
        wrong = (ranks - 1, steps - 1, 3 * records - 1)
        stream(client.address, "first", Plan(ranks, steps, records, drawn()))
        stream(client.address, "second", Plan(ranks, steps, records, drawn(1e-7, wrong)))

        await_rest(root / "data")

        def divergence() -> object:
            found = list(client.first_divergence("run:second", "run:first"))
            assert [each.step for each in found] == [steps - 1] * 2, found
            return found

        yield Question("divergence", f"{ranks} ranks x {steps} steps x {records}", divergence, 2.0)


def running_on(directory: pathlib.Path) -> list[int]:
    """The processes whose command line names the directory: the server that keeps it."""
    found = []
    for each in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(directory).encode() in each.read_bytes():
                found.append(int(each.parent.name))
        except OSError:
            continue
    return found


def processor_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def await_rest(directory: pathlib.Path, seconds: float = 120) -> None:
    """Waits until the server has done its background work on new steps: half a second without work."""
    pids = running_on(directory)
    end = time.monotonic() + seconds
    spent = processor_seconds(pids)
    while time.monotonic() < end:
        time.sleep(0.5)  # the time over which it is seen to do nothing
        before, spent = spent, processor_seconds(pids)
        if spent - before < 0.03:
            return
    print(f"the server still works after {seconds:.0f} s; what follows is measured beside that", file=sys.stderr)


def ask_all(
    root: pathlib.Path, wanted: Callable[[str], bool], repeat: int, kept: list[dict[str, object]]
) -> Iterator[str]:
    """Prints a row a question, and adds it to kept; gives the names of those over their limit."""
    from msprobe_client.client import Client

    with Client(data_dir=root / "data", create=True) as client:
        for question in questions(client, root, wanted):
            walls = []
            pids = [os.getpid(), *running_on(root / "data")]
            before = processor_seconds(pids)
            for _ in range(repeat):
                begun = time.monotonic()
                question.ask()
                walls.append(time.monotonic() - begun)
            spent = (processor_seconds(pids) - before) / repeat
            row = f"{question.name:<11}{question.what:<30}{'ours':>6}{min(walls):>9.3f}{spent:>9.3f}"
            print(f"{row}{question.wall_limit:>26.1f} s")
            cost = {"wall": min(walls), "cpu": spent, "wall_limit": question.wall_limit}
            kept.append({"case": question.name, "what": question.what, "ours": cost})
            if min(walls) > question.wall_limit:
                yield question.name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", action="store_true", help="do not run the real tool")
    parser.add_argument("--only", default="help,3k,30k,fuzzy,tensor,runs,divergence", help="names, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours; the fastest counts")
    parser.add_argument("--write", action="store_true", help="write docs/figures/compare.json")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    oracle = pathlib.Path(os.environ.get("MSPROBE_ORACLE", REPOSITORY / ".oracle"))
    if not (oracle / "bin" / "msprobe").exists() and not arguments.ours:
        print(f"no mindstudio-probe at {oracle}: only ours is measured (make oracle)", file=sys.stderr)
    has_oracle = (oracle / "bin" / "msprobe").exists() and not arguments.ours
    root = pathlib.Path(tempfile.mkdtemp(prefix="msprobe_bench_"))
    over = []
    kept: list[dict[str, object]] = []
    walls: dict[str, float] = {}
    try:
        real_environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"{'case':<11}{'what':<30}{'':>6}{'wall s':>9}{'CPU s':>9}{'peak MiB':>10}{'limit':>18}")
        for case in cases(root, oracle if has_oracle else None, lambda name: name in names):
            runs = [measure(case.ours, dict(os.environ)) for _ in range(arguments.repeat)]
            best = min(runs, key=lambda cost: cost.wall)
            walls[case.name] = best.wall
            wall_limit = 2 * walls["30k"] if case.name == "fuzzy" else case.wall_limit
            assert all(cost.code == 0 for cost in runs), f"{case.name} failed: {' '.join(case.ours)}"
            limit = f"{wall_limit:.1f} s {case.peak_limit:.0f} MiB"
            row = f"{case.name:<11}{case.what:<30}{'ours':>6}{best.wall:>9.2f}{best.cpu:>9.2f}{best.peak_mib:>10.0f}"
            print(f"{row}{limit:>18}")
            if best.wall > wall_limit or best.peak_mib > case.peak_limit:
                over.append(case.name)
            limits = {"wall_limit": wall_limit, "peak_limit_mib": case.peak_limit}
            kept.append({"case": case.name, "what": case.what, "ours": dataclasses.asdict(best), **limits})
            if case.theirs:
                real = measure(case.theirs, real_environment)
                kept[-1]["real"] = dataclasses.asdict(real)
                print(f"{'':<41}{'real':>6}{real.wall:>9.2f}{real.cpu:>9.2f}{real.peak_mib:>10.0f}")
            sys.stdout.flush()
        if "runs" in names or "divergence" in names:
            over += ask_all(root, lambda name: name in names, arguments.repeat, kept)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if over:
        print(f"over the limit: {', '.join(over)} (load {os.getloadavg()[0]:.1f})")
    if arguments.write:
        keep("compare", kept)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

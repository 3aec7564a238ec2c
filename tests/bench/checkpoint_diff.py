"""Measures msprobe-client checkpoint-diff beside a plain read of both files, and the server's peak memory.

    .venv/bin/python tests/bench/checkpoint_diff.py [--gib 4] [--runs 3] [--write]

Two safetensors files of random float32 of --gib GiB each, where --scratch says: equal ones, and ones where each element
differs. The plain read is `cat A B > /dev/null`. Both are by turns, and the best of --runs counts; files of which the
memory holds a part are read from the disk each time. More than LIMIT_READS of a plain read, or memory over LIMIT_MIB,
end the script with 1. The disk has to have room for two files; that is looked at first. --write keeps the figures in
docs/figures/checkpoint_diff.json, and writes the table of docs/checkpoints.md.

    .venv/bin/python tests/bench/checkpoint_diff.py --gib 20 --runs 1 --scratch /data     40 GiB of disk
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import figures
import numpy as np
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer

LIMIT_READS = {"equal": 3.0, "differs": 5.0}
LIMIT_MIB = 256
TENSOR_MIB = 64
BLOCK_MIB = 1024
SPARE_GIB = 1


def write(path: Path, gib: float, scale: float) -> None:
    """Tensors are parts of one block of random numbers, each from another place of it."""
    count = int(gib * 1024) // TENSOR_MIB
    size = TENSOR_MIB << 18  # elements of a tensor
    drawn = np.random.default_rng(1).standard_normal(min(BLOCK_MIB, int(gib * 1024)) << 18, dtype=np.float32)
    drawn *= np.float32(scale)
    names = sorted(f"layers.{number}.weight" for number in range(count))
    header = {
        name: {"dtype": "F32", "shape": [size], "data_offsets": [at * size * 4, (at + 1) * size * 4]}
        for at, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number in range(count):
            begin = number * 1_048_583 % (len(drawn) - size + 1)
            file.write(drawn[begin : begin + size])


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _all_of(client: Client, target: Path, golden: Path) -> None:
    for _ in client.checkpoints.diff(target, golden):
        pass


def peak_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def tell(kept: dict[str, Any], gib: float) -> None:
    rows = [
        f"| {name} | {row['reads']:.2f} | {row['gib_a_second']:.2f} GiB/s | {row['peak_mib']:.0f} MiB |"
        for name, row in kept["results"].items()
    ]
    table = [
        "| elements | times of a plain read | both files | server's peak memory |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Two safetensors files of {gib:g} GiB of float32 each, beside `cat A B > /dev/null` in turn "
        f"({figures.measured_on(kept, 'checkpoint_diff.py')}).",
    ]
    figures.put_table("checkpoints.md", "checkpoint_diff", "\n".join(table))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="a directory with room for two files")
    parser.add_argument("--write", action="store_true", help="keep the figures in docs/")
    options = parser.parse_args()
    gib = max(options.gib, TENSOR_MIB / 1024)
    free = shutil.disk_usage(options.scratch).free / 2**30
    if free < 2 * gib + SPARE_GIB:
        raise SystemExit(
            f"checkpoint_diff: {options.scratch} has {free:.1f} GiB free; two files of {gib:g} GiB need "
            f"{2 * gib + SPARE_GIB:.1f}: name another directory by --scratch, or fewer by --gib"
        )
    failed = False
    results = {}
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        golden, target = (Path(scratch) / f"{name}.safetensors" for name in ("golden", "target"))
        write(golden, gib, 1.0)
        for name in ("equal", "differs"):
            write(target, gib, 1.0 if name == "equal" else 1.0 + 2**-20)
            with (
                tempfile.TemporaryDirectory() as store,
                EmbeddedServer(store, create=True) as server,
                Client(server.address) as client,
            ):
                plain = partial(subprocess.run, ["cat", target, golden], stdout=subprocess.DEVNULL, check=True)
                pairs = [
                    (seconds(plain), seconds(partial(_all_of, client, target, golden))) for _ in range(options.runs)
                ]
                peak = peak_mib(server.process_id or 0)
            read, took = (min(each) for each in zip(*pairs, strict=True))
            over = took > LIMIT_READS[name] * read or peak > LIMIT_MIB
            failed |= over
            results[name] = {"reads": took / read, "gib_a_second": 2 * gib / took, "peak_mib": peak}
            print(
                f"{name}: {took:.2f} s, {took / read:.2f} of a plain read ({read:.2f} s), {2 * gib / took:.2f} GiB/s, "
                f"peak {peak:.0f} MiB{' OVER' if over else ''}",
                flush=True,
            )
    if options.write:
        tell(figures.keep("checkpoint_diff", results), gib)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Measures msprobe-client checkpoint-diff beside a plain read of both files, and the server's peak memory.

    .venv/bin/python tests/bench/checkpoint_diff.py [--gib 4]

Two safetensors files of random float32 of --gib GiB each, in a page cache that is warm: equal ones, and ones where each
element differs. The plain read is `cat A B > /dev/null`. The best of three each. More than LIMIT_READS of it, or memory
over LIMIT_MIB, end the script with 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer
from safetensors.numpy import save_file

LIMIT_READS = {"equal": 3.0, "differs": 5.0}
LIMIT_MIB = 256
TENSOR_MIB = 64
RUNS = 3


def write(path: Path, gib: float, scale: float) -> None:
    drawn = np.random.default_rng(1)
    count = TENSOR_MIB << 18
    one = drawn.standard_normal(count, dtype=np.float32) * np.float32(scale)
    save_file({f"layers.{i}.weight": np.roll(one, i) for i in range(int(gib * 1024) // TENSOR_MIB)}, path)


def best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _all_of(client: Client, target: Path, golden: Path) -> None:
    for _ in client.checkpoints.diff(target, golden):
        pass


def peak_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4)
    gib = parser.parse_args().gib
    failed = False
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as scratch:
        files = {name: Path(scratch) / f"{name}.safetensors" for name in ("golden", "equal", "differs")}
        for name, path in files.items():
            write(path, gib, 1.0 if name != "differs" else 1.0 + 2**-20)
        for name in ("equal", "differs"):
            sides = (files[name], files["golden"])
            read = best(partial(subprocess.run, ["cat", *sides], stdout=subprocess.DEVNULL, check=True))
            with (
                tempfile.TemporaryDirectory() as store,
                EmbeddedServer(store) as server,
                Client(server.address) as client,
            ):
                took = best(partial(_all_of, client, *sides))
                peak = peak_mib(server.process_id)
            over = took > LIMIT_READS[name] * read or peak > LIMIT_MIB
            failed |= over
            print(
                f"{name}: {took:.2f} s, {took / read:.2f} of a plain read ({read:.2f} s), {2 * gib / took:.2f} GiB/s, "
                f"peak {peak:.0f} MiB{' OVER' if over else ''}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Measures debugger.weights() beside a plain read of the parameters, and msprobe-client weights against a checkpoint.

    .venv/bin/python tests/bench/weights.py [--mib 512]

--mib of bfloat16 parameters, in matrices of 4096 columns, in host memory, on one thread. The plain read is torch's sum
of their bytes as int64; that of the checkpoint is `cat FILE > /dev/null`. Alternating, the best of five each. A call
over LIMIT_READS plain reads, or a comparison over LIMIT_FILE_READS, ends the script with 1.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from msprobe.pytorch import PrecisionDebugger
from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer
from msprobe_client.weight_differences import WeightsPlace
from safetensors.torch import save_file

LIMIT_READS = 8.0
LIMIT_FILE_READS = 12.0
RUNS = 5
MATRIX = (2048, 4096)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def alternating(*works: Callable[[], object]) -> list[float]:
    """The best of RUNS of each."""
    taken = [[seconds(work) for work in works] for _ in range(RUNS)]
    return [min(of) for of in zip(*taken, strict=True)]


def read_all(weights: dict[str, torch.Tensor]) -> None:
    for value in weights.values():
        value.view(torch.int64).sum()


def compare(client: Client, path: Path) -> None:
    kinds = {item.kind for item in client.checkpoints.weights(WeightsPlace("bench"), WeightsPlace(path=path))}
    assert kinds == {"equal"}, kinds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=512)
    count = max(parser.parse_args().mib // 16, 1)
    torch.set_num_threads(1)
    drawn = torch.Generator().manual_seed(1)
    one = torch.randn(*MATRIX, generator=drawn).to(torch.bfloat16)
    weights = {f"layers.{i}.weight": one.roll(i, 0) for i in range(count)}
    with contextlib.ExitStack() as held:
        scratch = Path(held.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp"))))
        path = scratch / "weights.safetensors"
        save_file(weights, path)
        server = held.enter_context(EmbeddedServer(scratch / "store", create=True))
        client = held.enter_context(Client(server.address))
        atexit.register(held.pop_all().close)  # after the debugger's own end, since that is registered later
        os.environ |= {"MSPROBE_SERVER": server.address, "MSPROBE_RUN": "bench"}
    debugger = PrecisionDebugger(dump_path=str(scratch / "dump"), task="statistics", level="L1")
    debugger.weights({"first": torch.zeros(1)})
    debugger.step()
    plain, call = alternating(partial(read_all, weights), partial(debugger.weights, weights))
    debugger.step()
    assert debugger.wait()
    file_read, comparison = alternating(
        partial(subprocess.run, ["cat", path], stdout=subprocess.DEVNULL, check=True),
        partial(compare, client, path),
    )
    gib = count * 16 / 1024
    print(
        f"debugger.weights: {call / plain:.2f} of a plain read ({gib / plain:.1f} GiB/s)\n"
        f"msprobe-client weights, checkpoint: {comparison / file_read:.2f} of a plain read "
        f"({gib / file_read:.1f} GiB/s)"
    )
    return int(call > LIMIT_READS * plain or comparison > LIMIT_FILE_READS * file_read)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What msprobe-client check costs a call, its start included: a small transformer with tensors, forward and backward.

check.py              about 500 calls: by one process, by two workers, and of what was saved; one thread of torch
check.py --write      keeps the figures in docs/figures/check.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures

LIMIT_MS = 15  # a call by two workers, in the mean
LAYERS = 40
WAYS = {"one process": [], "two workers": ["--workers", "2"], "what was saved": ["--device", "recorded"]}

CAPTURE = f"""
import sys, torch
from msprobe.pytorch import PrecisionDebugger
torch.set_num_threads(1)
torch.manual_seed(0)
layers = torch.nn.ModuleList(
    [torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0) for _ in range({LAYERS})])
debugger = PrecisionDebugger(dump_path=sys.argv[1], task="tensor", level="L1")
debugger.start(layers)
x = torch.randn(4, 16, 64, requires_grad=True)
for layer in layers:
    x = layer(x)
    x = torch.nn.functional.gelu(x) + x
x.square().mean().backward()
debugger.stop()
debugger.step()
debugger.wait()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    client = Path(sys.executable).with_name("msprobe-client")
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch:
        subprocess.run([sys.executable, "-c", CAPTURE, f"{scratch}/dump"], check=True)
        for name, more in WAYS.items():
            output = Path(scratch) / f"{len(results)}.json"
            words = ["check", f"{scratch}/dump", *more, "--format", "json", "--output", str(output)]
            start = time.perf_counter()
            done = subprocess.run([client, *words], check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
            seconds = time.perf_counter() - start
            rows = json.loads(output.read_text())["rows"]
            calls = len({row["name"].split(".forward")[0].split(".backward")[0] for row in rows})
            each = seconds / calls * 1000
            results[name] = {"calls": calls, "outputs": len(rows), "seconds": seconds, "ms_a_call": each}
            print(f"{name}: {calls} calls, {len(rows)} outputs, {seconds:.2f} s, {each:.1f} ms a call")
            if done.returncode != 0:
                raise SystemExit(f"check: exit code {done.returncode}: a right run has wrong operators")
        if (each := results["two workers"]["ms_a_call"]) > LIMIT_MS:
            raise SystemExit(f"check: {each:.1f} ms a call by two workers; at most {LIMIT_MS}")
    if options.write:
        figures.keep("check", results)


if __name__ == "__main__":
    main()

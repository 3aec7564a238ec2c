#!/usr/bin/env python3
"""What msprobe-client check costs a call, its start included: a small transformer with tensors, forward and backward.

check.py              about 500 calls: by one process, by two workers, and of what was saved; one thread of torch. Then
                      the numbers of a pair of 16M elements, in times of a plain read of both
check.py --real       also mindstudio-probe's acc_check on the CPU, as it is, with the calls of one layer
check.py --write      keeps the figures in docs/figures/check.json, and writes the table of docs/checking.md
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
from typing import Any

import figures

LIMIT_MS = 15  # a call by two workers, in the mean
LIMIT_READS = 3  # plain reads of both sides, whatever their dtypes
LAYERS = 40
METRICS = figures.ROOT / "build" / "benchmarks" / "accuracy_benchmark"
# The benchmark's pairs, each with the plain read of the same bytes.
PAIRS = {
    "Float32AgainstFloat64": "PlainReadOfFloat32AndFloat64",
    "Float32AgainstFloat32": "PlainReadOfFloat32Twice",
    "Bfloat16AgainstFloat64": "PlainReadOfBfloat16AndFloat64",
    "Float32AgainstItself": "PlainReadOfFloat32Twice",
}
WAYS = {"one process": [], "two workers": ["--workers", "2"], "what was saved": ["--device", "recorded"]}

CAPTURE = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger
torch.set_num_threads(1)
torch.manual_seed(0)
layers = torch.nn.ModuleList(
    [torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0) for _ in range(int(sys.argv[2]))])
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


# It knows NPUs and GPUs alone, so that its device is set to the CPU.
REAL = """
import sys, torch
torch.cuda.set_device = lambda *_: None
torch.cuda.empty_cache = lambda: None
from msprobe.core.acc_check.acc_check_cli import acc_check_cli
from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check, acc_check_utils
acc_check.current_device = acc_check_utils.current_device = "cpu"
acc_check_cli(["-api_info", sys.argv[1], "-o", sys.argv[2]])
"""


def capture(path: Path, layers: int) -> Path:
    subprocess.run([sys.executable, "-c", CAPTURE, str(path), str(layers)], check=True)
    return next(path.glob("step0/*/dump.json"))


def without_attention(dump: Path) -> Path:
    """It takes multi_head_attention_forward.0.backward for a forward call, and ends."""
    document = json.loads(dump.read_text())
    document["data"] = {
        name: entry for name, entry in document["data"].items() if "multi_head_attention_forward" not in name
    }
    dump.write_text(json.dumps(document))
    return dump


def real(scratch: Path) -> dict[str, float]:
    """mindstudio-probe, its start included."""
    python = Path(os.environ.get("MSPROBE_ORACLE", figures.ROOT / ".oracle")) / "bin" / "python"
    dump = without_attention(capture(scratch / "layer", 1))
    script = scratch / "real.py"
    script.write_text(REAL)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    start = time.perf_counter()
    done = subprocess.run(
        [python, script, dump, scratch / "theirs"],
        check=False,
        capture_output=True,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise SystemExit(f"mindstudio-probe: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    (details,) = (scratch / "theirs").glob("accuracy_checking_result_*.csv")
    calls = len(details.read_text(encoding="utf-8-sig").splitlines()) - 1
    each = seconds / calls * 1000
    print(f"mindstudio-probe: {calls} calls, {seconds:.2f} s, {each:.1f} ms a call")
    return {"calls": calls, "seconds": seconds, "ms_a_call": each}


def metrics() -> dict[str, float]:
    """Pairs of 16M elements in times of a plain read, by time of the CPU; the best of ten runs of each."""
    done = subprocess.run(
        [METRICS, "--benchmark_repetitions=10", "--benchmark_min_time=0.05", "--benchmark_format=json"],
        check=True,
        capture_output=True,
        text=True,
    )
    best: dict[str, float] = {}
    for one in json.loads(done.stdout)["benchmarks"]:
        if one["run_type"] == "iteration":
            best[one["run_name"]] = min(one["cpu_time"], best.get(one["run_name"], one["cpu_time"]))
    found = {name: best[name] / best[read] for name, read in PAIRS.items()}
    for name, reads in found.items():
        print(f"{name}: {best[name]:.1f} ms, {reads:.2f} plain reads")
    return found


def write(kept: dict[str, Any]) -> None:
    ways = {name: row for name, row in kept["results"].items() if name != "plain reads"}
    said = {
        "Float32AgainstFloat64": "float32 and float64",
        "Float32AgainstFloat32": "float32 twice",
        "Bfloat16AgainstFloat64": "bfloat16 and float64",
        "Float32AgainstItself": "equal float32",
    }
    reads = ", ".join(f"{number:.2f} ({said[name]})" for name, number in kept["results"].get("plain reads", {}).items())
    numbers = f" All numbers of a pair of 16M elements take {reads} times a plain read of both." if reads else ""
    figures.put_table(
        "checking.md",
        "check",
        "\n".join(
            [
                "| a small transformer is checked by | calls | a call |",
                "|---|---|---|",
                *(f"| {name} | {row['calls']:.0f} | {row['ms_a_call']:.1f} ms |" for name, row in ways.items()),
                "",
                f"Forward and backward, start included.{numbers} ({figures.measured_on(kept, 'check.py')})",
            ]
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    client = Path(sys.executable).with_name("msprobe-client")
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch:
        capture(Path(scratch) / "dump", LAYERS)
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
        if options.real:
            results["mindstudio-probe"] = real(Path(scratch))
    results["plain reads"] = metrics()
    if options.write:
        write(figures.keep("check", results))
    missed = []
    if (each := results["two workers"]["ms_a_call"]) > LIMIT_MS:
        missed.append(f"{each:.1f} ms a call by two workers; at most {LIMIT_MS}")
    if (reads := max(results["plain reads"].values())) > LIMIT_READS:
        missed.append(f"numbers in {reads:.2f} plain reads; at most {LIMIT_READS}")
    if missed:
        raise SystemExit(f"check: {' and '.join(missed)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What judging replies while vLLM writes them (judge_replies) costs a step: steps with it and without, in turn.

live_replies.py           64 requests at once, in a model of one small layer: the shortest steps that vLLM has
live_replies.py --write   also writes the table of docs/responses.md and docs/figures/live_replies.json

Times are of the engine's thread on its processor, and it computes the model too. It ends with 1 where a step that is
judged takes more than LIMIT of one that is not. vLLM is that of `make vllm`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import figures
from overhead import server

sys.path.insert(0, str(figures.ROOT / "tests"))

from harness.vllm import ENVIRONMENT  # type: ignore[import-not-found]

LIMIT = 1.1
REQUESTS = 64  # of judged_steps.py
PROGRAMS = figures.ROOT / "tests" / "vllm" / "programs"
VLLM = Path(os.environ.get("MSPROBE_VLLM", figures.ROOT / ".venv-vllm")) / "bin" / "python"


def steps(scratch: Path, address: str) -> list[float]:
    """The time of each step, in seconds. Every second step is judged, the first is not."""
    model, config = scratch / "model", scratch / "config.json"
    subprocess.run([VLLM, PROGRAMS / "looping_model.py", model], check=True)
    fields = {"task": "statistics", "dump_path": str(scratch / "dump"), "dump_enable": False, "server": address}
    config.write_text(json.dumps(fields))
    command = [VLLM, PROGRAMS / "judged_steps.py", model, config]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, check=True, stdout=subprocess.PIPE, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("TIMES "))
    times: list[float] = json.loads(line.removeprefix("TIMES "))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not VLLM.exists():
        raise SystemExit(f"live_replies: there is no vLLM at {VLLM}; run make vllm, or set MSPROBE_VLLM")
    with tempfile.TemporaryDirectory() as scratch, server(Path(scratch)) as address:
        times = steps(Path(scratch), address)
    plain, judged = times[0::2], times[1::2]
    around = [(before + after) / 2 for before, after in itertools.pairwise(plain)]
    ratio = statistics.median(one / other for one, other in zip(judged, around, strict=True))
    spread = statistics.median(one / other for one, other in itertools.pairwise(plain))
    token = statistics.median(one - other for one, other in zip(judged, around, strict=True)) / REQUESTS
    row = {
        "plain_ms": 1e3 * statistics.median(plain),
        "ratio": ratio,
        "spread": spread,
        "token_us": 1e6 * token,
    }
    table = (
        "| step of 64 requests | judged / plain | plain / plain | a token |\n|---:|---:|---:|---:|\n"
        f"| {row['plain_ms']:.1f} ms | {ratio:.3f} | {spread:.3f} | {row['token_us']:.1f} µs |"
    )
    print(table)
    if options.write:
        kept = figures.keep("live_replies", row)
        figures.put_table(
            "responses.md", "live_replies.py", f"{table}\n\n{figures.measured_on(kept, 'live_replies.py')}"
        )
    if ratio > LIMIT:
        raise SystemExit(f"live_replies: a step that is judged takes {ratio:.3f} of one that is not, limit {LIMIT}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What debugger.replay costs beside running a step twice from the same state: a training step of a small transformer.

replay.py             both in turn, in one process; the median of the ratios. Asserts the limit
replay.py --write     keeps the figures in docs/figures/replay.json
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import figures
import torch
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch._step_state import StepState

LIMIT = 1.05  # of the two passes themselves
LAYERS, WIDTH, BATCH, LENGTH = 4, 768, 8, 128


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        *[torch.nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True) for _ in range(LAYERS)]
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.randn(BATCH, LENGTH, WIDTH)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def twice() -> None:
        state = StepState([model], optimizer, (batch,))
        step(batch)
        state.restore()
        step(batch)

    step(batch)
    ratios = []
    with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch:
        debugger = PrecisionDebugger(dump_path=str(Path(scratch) / "dump"))
        for pair in range(options.pairs + 1):
            plain = seconds(twice)
            captured = seconds(lambda: debugger.replay(step, batch, model=model, optimizer=optimizer))
            debugger.wait()
            if pair > 0:  # the first starts the server
                ratios.append(captured / plain)
                print(f"twice {plain:.3f} s, replay {captured:.3f} s, ratio {captured / plain:.3f}", flush=True)
    ratio = statistics.median(ratios)
    print(f"median {ratio:.3f} (limit {LIMIT})")
    if options.write:
        figures.keep("replay", {"ratio": ratio, "lowest": min(ratios), "highest": max(ratios), "pairs": len(ratios)})
    if ratio > LIMIT:
        raise SystemExit(f"replay: {ratio:.3f} times the two passes; at most {LIMIT}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What debugger.replay costs beside running a step twice from the same state: a training step of a small transformer.

replay.py             both in turn, in one process; the medians of the ratios. Asserts the limit
replay.py --write     keeps the figures in docs/figures/replay.json, and writes the table of docs/replay.md

Two ratios: of the time that passes, and of that time without what other processes had of the core (own_time.py), which
has the limit.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import torch
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch._step_state import StepState
from own_time import own_seconds

LIMIT = 1.05  # of the two passes themselves
OWN = "the same without other processes"
LAYERS, WIDTH, BATCH, LENGTH = 4, 768, 8, 128


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that pass, and those without what other processes had of the core."""
    passed, own = time.perf_counter(), own_seconds()
    work()
    return time.perf_counter() - passed, own_seconds() - own


def write(kept: dict[str, Any]) -> None:
    rows = [
        f"| {name} | {row['median']:.3f} | {row['lowest']:.3f} to {row['highest']:.3f} |"
        for name, row in kept["results"].items()
    ]
    figures.put_table(
        "replay.md",
        "replay",
        "\n".join(
            [
                "| a replay, in times of the two passes | median | range |",
                "|---|---|---|",
                *rows,
                "",
                f"{LAYERS} transformer layers of width {WIDTH}, forward, backward and AdamW, one thread "
                f"({figures.measured_on(kept, 'replay.py')}).",
            ]
        ),
    )


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
    ratios: dict[str, list[float]] = {"time that passes": [], OWN: []}
    with tempfile.TemporaryDirectory(prefix="msprobe-bench-") as scratch:
        debugger = PrecisionDebugger(dump_path=str(Path(scratch) / "dump"))
        for pair in range(options.pairs + 1):
            plain = cost(twice)
            captured = cost(lambda: debugger.replay(step, batch, model=model, optimizer=optimizer))
            debugger.wait()
            if pair > 0:  # the first starts the server
                for kind, without, with_capture in zip(ratios.values(), plain, captured, strict=True):
                    kind.append(with_capture / without)
                print(
                    f"twice {plain[0]:.3f} s, replay: {', '.join(f'{k[-1]:.3f}' for k in ratios.values())}", flush=True
                )
    results = {
        name: {"median": statistics.median(found), "lowest": min(found), "highest": max(found), "pairs": len(found)}
        for name, found in ratios.items()
    }
    for name, row in results.items():
        print(f"{name}: median {row['median']:.3f}")
    if options.write:
        write(figures.keep("replay", results))
    if (ratio := results[OWN]["median"]) > LIMIT:
        raise SystemExit(f"replay: {ratio:.3f} times the two passes, by {OWN}; at most {LIMIT}")


if __name__ == "__main__":
    main()

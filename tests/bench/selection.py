#!/usr/bin/env python3
"""What a call costs that `select` leaves out, beside the same call without a debugger.

    selection.py            some twenty seconds; ends with 1 where a call costs more than LIMIT_NS
    selection.py --write    keeps the results in docs/figures/selection.json and docs/config.md

One process, started and stopped in turn: blocks of calls of tensors of one element, and of modules that do nothing. A
number is the median over pairs of blocks. Time for which the thread had no core does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
from own_time import own_seconds

LIMIT_NS = 300
CALLS = 2000
SELECT = 'api("conv2d") & under("blocks.*")'
SHOWN = {
    "torch.add": "a function of C (`torch.add`)",
    "Tensor.add": "a method (`x.add`)",
    "relu": "one of the two in a function of Python (`F.relu` calls `torch.relu`)",
    "module": "a module",
}
CALLS_IN = {"relu": 2}  # calls that select leaves out, of one that the bench makes


def calls() -> tuple[Any, dict[str, Callable[[], None]]]:
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    one = torch.ones(1)

    class Nothing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    model = torch.nn.Sequential(torch.nn.Sequential(Nothing()))
    inner = model[0][0]
    add, method, relu = torch.add, torch.Tensor.add, functional.relu

    def block(call: Callable[..., Any], *arguments: Any) -> Callable[[], None]:
        def run() -> None:
            for _ in range(CALLS):
                call(*arguments)

        return run

    return model, {
        "torch.add": block(add, one, one),
        "Tensor.add": block(method, one, one),
        "relu": block(relu, one),
        "module": block(inner, one),
    }


def measure(pairs: int) -> dict[str, dict[str, float]]:
    from msprobe.pytorch import PrecisionDebugger

    model, blocks = calls()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.json"
        path.write_text(json.dumps({"task": "statistics", "level": "mix", "dump_path": directory, "select": SELECT}))
        debugger = PrecisionDebugger(path)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in blocks}
        for pair in range(pairs + 2):
            taken: list[dict[str, float]] = []
            for captures in (False, True):
                if captures:
                    debugger.start(model=model)
                one: dict[str, float] = {}
                for name, run in blocks.items():
                    begun = own_seconds()
                    run()
                    one[name] = own_seconds() - begun
                taken.append(one)
            debugger.stop()
            debugger.step()
            for name in blocks if pair >= 2 else ():
                times[name].append((taken[0][name], taken[1][name]))
        for name, found in times.items():
            left_out = CALLS * CALLS_IN.get(name, 1)
            plain = statistics.median(before for before, _ in found) / left_out * 1e9
            more = statistics.median(after - before for before, after in found) / left_out * 1e9
            results[name] = {"plain_ns": plain, "more_ns": more}
    return results


def table(results: dict[str, dict[str, float]]) -> str:
    lines = ["| a call that is left out | plain, ns | more, ns |", "|---|---:|---:|"]
    for name, row in results.items():
        lines.append(f"| {SHOWN[name]} | {row['plain_ns']:.0f} | {row['more_ns']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    results = measure(options.pairs)
    print(table(results))
    if options.write:
        kept = figures.keep("selection", results)
        figures.put_table(
            "config.md", "selection bench", f"{figures.measured_on(kept, 'selection.py')}\n\n{table(results)}"
        )
    missed = [name for name, row in results.items() if row["more_ns"] > LIMIT_NS]
    if missed:
        sys.exit(f"selection: {', '.join(missed)} cost more than {LIMIT_NS} ns")


if __name__ == "__main__":
    main()

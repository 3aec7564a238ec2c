#!/usr/bin/env python3
"""What task monitor costs a training step, in one process: watched and plain steps in turn.

    training_watch.py                 two layers of the bench's Qwen2 by AdamW; some three minutes
    training_watch.py --steps 20

It ends with 1 where a limit is missed. A ratio is the median, over all watched steps, of the step's time over the mean
of the plain ones around it. The floor is the time to read gradients, parameters and both moments once, as fast as one
core reads at best in the same run. Activations are captured every second step here, every tenth by default: what a
captured step costs more is divided by ten.
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
import time
from pathlib import Path
from typing import Any

from overhead import server
from overhead_worker import bandwidth
from rich.console import Console
from rich.table import Table

WATCHED_LIMIT = 1.04  # of the plain step and the floor
AMORTISED_LIMIT = 1.01
SAMPLED_EVERY = 10
CASES: dict[str, dict[str, Any]] = {
    "gradients, parameters, moments": {"interval": 2, "activations": 0},
    "activations": {
        "activations": 2,
        **dict.fromkeys(("weight_grad", "parameters", "moments", "update_ratio"), False),
    },
}


def train(options: argparse.Namespace, section: dict[str, Any], address: str) -> dict[str, float]:
    """Times of plain and watched steps, and the floor, in seconds."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(1234)
    config = Qwen2Config(
        vocab_size=32000,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=options.layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        use_cache=False,
    )
    model = Qwen2ForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def step() -> float:
        tokens = torch.randint(0, 32000, (1, options.tokens))
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        return time.perf_counter() - begun

    for _ in range(3):
        step()
    elements = sum(parameter.numel() for parameter in model.parameters())
    floor = 4 * 4 * elements / bandwidth()
    from msprobe.pytorch import watch

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.json"
        fields = {"task": "monitor", "dump_path": directory, "server": address, "monitor": section}
        path.write_text(json.dumps(fields))
        watch(model, optimizer, config_path=path, rank_id=0)
        times = [step() for _ in range(2 * options.steps + 2)][1:]  # step 1 is plain
    plain, watched = times[0::2], times[1::2]
    ratios = [one / ((before + after) / 2) for one, before, after in zip(watched, plain, plain[1:], strict=False)]
    spread = [one / other for one, other in itertools.pairwise(plain)]
    return {
        "plain": statistics.median(plain),
        "ratio": statistics.median(ratios),
        "spread": statistics.median(spread),
        "floor": floor,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print("RESULT", json.dumps(train(options, CASES[options.case], options.address)))
        return
    table = Table("watched", "plain step", "watched/plain", "plain/plain", "floor", "result", "limit")
    missed = False
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch, server(Path(scratch)) as address:
            shared = [f"--{name}={getattr(options, name)}" for name in ("steps", "layers", "tokens")]
            command = [sys.executable, __file__, "--case", case, "--address", address, *shared]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
        found = json.loads(line.removeprefix("RESULT "))
        if case == "activations":
            result, limit = 1 + (found["ratio"] - 1) / SAMPLED_EVERY, AMORTISED_LIMIT
        else:
            result, limit = found["ratio"] / (1 + found["floor"] / found["plain"]), WATCHED_LIMIT
        missed |= result > limit
        table.add_row(
            case,
            f"{found['plain'] * 1000:.0f} ms",
            f"{found['ratio']:.3f}",
            f"{found['spread']:.3f}",
            f"{found['floor'] * 1000:.1f} ms",
            f"{result:.3f}",
            f"{limit}",
        )
    Console(width=130).print(table)
    sys.exit(missed)


if __name__ == "__main__":
    main()

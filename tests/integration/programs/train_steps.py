"""Trains the tiny Qwen2, one dump step a training step, and writes the step it has reached into --progress.

--hang-in N: in step N runs the forward for ever, counting passes in --progress as "N:passes".
--hold-after N: after step N waits until the file --go appears.
--pace FILE: waits before each step until FILE holds at least the step's number.
"""

import argparse
import json
import pathlib
import time

import nets
import torch
from say import say


def report(path, text):
    if path:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(path)


def hold(go):
    while not go.exists():
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--progress", type=pathlib.Path)
    parser.add_argument("--hang-in", type=int)
    parser.add_argument("--hold-after", type=int)
    parser.add_argument("--go", type=pathlib.Path)
    parser.add_argument("--wait", action="store_true", help="debugger.wait() at the end, then list the files")
    parser.add_argument("--rank-id", type=int)
    parser.add_argument("--optimizer", action="store_true")
    options = parser.parse_args()

    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=options.config)
    model = nets.qwen2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3) if options.optimizer else None
    more = {} if options.rank_id is None else {"rank_id": options.rank_id}
    for step in range(options.steps):
        debugger.start(model=model, **more)
        tokens = nets.tokens(step)
        if step == options.hang_in:
            passes = 0
            while True:
                model(input_ids=tokens, labels=tokens)
                passes += 1
                report(options.progress, f"{step}:{passes}")
        model.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        if optimizer:
            optimizer.step()
        debugger.stop()
        debugger.step()
        report(options.progress, str(step))
        if step == options.hold_after:
            hold(options.go)
    if options.wait:
        debugger.wait()
        dump_path = pathlib.Path(json.loads(pathlib.Path(options.config).read_text())["dump_path"])
        say("WAITED", json.dumps(sorted(str(path.relative_to(dump_path)) for path in dump_path.glob("step*/*/*"))))


if __name__ == "__main__":
    main()

"""Runs steps of a small net until the file --end appears, and writes the step it has reached into --progress.

--graph: under AclGraphDumper, compiled. --once: start() before the first step only, and no stop().
"""

import argparse
import pathlib
import time

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--rank-id", type=int)
    parser.add_argument("--progress", type=pathlib.Path, required=True)
    parser.add_argument("--end", type=pathlib.Path, required=True)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    run = model
    if options.graph:
        from msprobe.pytorch import AclGraphDumper

        debugger = AclGraphDumper(options.config)
        debugger.start(model, rank_id=options.rank_id)
        run = torch.compile(model, backend="aot_eager", fullgraph=True)
    else:
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=options.config)
    step = 0
    with torch.no_grad():
        while not options.end.exists():
            if not options.graph and (step == 0 or not options.once):
                debugger.start(model=model, rank_id=options.rank_id)
            run(torch.ones(2, 8) * step)
            if not options.graph and not options.once:
                debugger.stop()
            debugger.step()
            step += 1
            temporary = options.progress.with_suffix(".tmp")
            temporary.write_text(str(step))
            temporary.replace(options.progress)
            time.sleep(0.01)  # a step of a model that does something


if __name__ == "__main__":
    main()

"""Trains a net, logs its loss, and does what the file SAY says: nan, the next step's loss is one; end.

It takes the file away when it has heard, and writes the step that it has reached into STEP.
"""

import argparse
import pathlib
import time

import torch
from msprobe.pytorch import PrecisionDebugger


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("say", type=pathlib.Path)
    parser.add_argument("step", type=pathlib.Path)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    debugger = PrecisionDebugger(config_path=options.config)
    word, step = "", 0
    while word != "end":
        debugger.start(model=model, rank_id=0)
        loss = model(torch.ones(2, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        debugger.log({"loss": float("nan") if word == "nan" else loss})
        debugger.stop()
        debugger.step()
        step += 1
        temporary = options.step.with_suffix(".tmp")
        temporary.write_text(str(step))
        temporary.replace(options.step)
        time.sleep(0.01)  # a step of a model that does something
        word = ""
        if options.say.exists() and (word := options.say.read_text()):
            options.say.unlink()


if __name__ == "__main__":
    main()

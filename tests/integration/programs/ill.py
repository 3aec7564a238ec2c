"""A training whose loss is NaN from its fourth step on, watched by the one line. Ends when a file appears.

ill.py DUMP_PATH FILE
"""

import sys
import time
from pathlib import Path

import torch

import msprobe


def main():
    config = Path(sys.argv[2]).with_suffix(".json")
    config.write_text('{"task": "monitor", "dump_path": "%s", "monitor": {}}' % sys.argv[1])
    end = Path(sys.argv[2])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    msprobe.watch(model, optimizer, config_path=config, rank_id=0)
    step = 0
    while not end.exists():
        optimizer.zero_grad()
        loss = model(torch.ones(8, 4)).square().mean()
        loss.backward()
        msprobe.log({"loss": float("nan") if step > 3 else loss})
        optimizer.step()
        step += 1
        time.sleep(0.05)  # a step of a job


if __name__ == "__main__":
    main()

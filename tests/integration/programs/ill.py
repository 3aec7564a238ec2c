"""A training whose loss is NaN from its fourth step on, watched by the one line. Ends when a file appears.

ill.py DUMP_PATH FILE
"""

import json
import sys
import time
from pathlib import Path

import msprobe
import torch


def main():
    config = Path(sys.argv[2]).with_suffix(".json")
    config.write_text(json.dumps({"task": "monitor", "dump_path": sys.argv[1], "monitor": {}}))
    end = Path(sys.argv[2])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    msprobe.watch(model, optimizer, config_path=config, rank_id=0)
    step = 0
    while not end.exists():
        optimizer.zero_grad()
        loss = (model(torch.randn(8, 4)) - 1).square().mean()
        loss.backward()
        msprobe.log({"loss": float("nan") if step > 3 else loss})
        optimizer.step()
        step += 1
        time.sleep(0.05)  # a step of a job


if __name__ == "__main__":
    main()

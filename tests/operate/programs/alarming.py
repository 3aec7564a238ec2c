"""A run that raises three alarms, of which the last waits until HOLD is gone: alarming.py CONFIG HOLD."""

import pathlib
import sys
import time

import torch
from msprobe.pytorch import PrecisionDebugger

NAN_AT, EXPLODES_AT, WAITS_AT, JUMPS_AT, STEPS = 12, 16, 20, 25, 30


def main():
    config, hold = sys.argv[1:]
    debugger = PrecisionDebugger(config)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    for step in range(STEPS):
        if step == WAITS_AT:
            debugger.wait()
            while pathlib.Path(hold).exists():
                time.sleep(0.05)  # until the next look; the test takes HOLD away when the page shows two alarms
        debugger.start(model, rank_id=0)
        model(torch.full((2, 4), float("nan") if step == NAN_AT else 1.0))
        debugger.stop()
        debugger.log(
            {"grad_norm": 1e9 if step == EXPLODES_AT else 1.0, "update_ratio/w": 9.0 if step == JUMPS_AT else 0.1}
        )
        debugger.step()
    debugger.wait()


if __name__ == "__main__":
    main()

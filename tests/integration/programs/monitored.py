"""Trains a net and logs scalars: all kinds of numbers, some from a device that nobody may wait for, and wrong ones.

--first: number of the first step, as a job that was restarted has it. --nan: the loss is NaN from this step on.
"""

import argparse
import pathlib
import sys

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import msprobe
import npu
from msprobe.pytorch import PrecisionDebugger


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--nan", type=int)
    options = parser.parse_args()
    torch.manual_seed(1)
    device = npu.load()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = PrecisionDebugger(config_path=options.config)
    PrecisionDebugger.set_init_step(options.first)
    on_device = torch.full((), 0.25, device=device)
    batch = torch.randn(8, 4)
    for step in range(options.first, options.first + options.steps):
        debugger.start(model=model, rank_id=0)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scalars = {"loss": loss if step != options.nan else loss * float("nan"), "lr": 0.1, "step/double": 2 * step}
        debugger.log(scalars)
        print(f"LOSS {step} {scalars['loss'].item():.9g}")
        torch.accelerator.synchronize()
        npu.reset()
        with npu.Held():  # whoever waits for the device now waits for ever
            msprobe.log({"device": on_device, "integer": torch.tensor(step), "numpy": numpy.float32(0.5)})
        assert npu.counters().waiting_device_to_host == 0
        debugger.stop()
        debugger.step()
        debugger.log({"eval": 10 * step}, step=step)  # of a step that has ended
    for wrong in ({"vector": torch.zeros(2)}, {"text": "1.5"}, {"": 1.0}, {3: 1.0}, {"complex": 1j}, {"none": None}):
        debugger.log(wrong)
    debugger.log({"good": 1.0, "bad": [1.0]}, step=options.first)
    debugger.log({"late": 1.0}, step=-1)
    debugger.log([1.0])
    last = options.first + options.steps - 1
    debugger.log({"huge": 10**400, "infinite": float("-inf"), "bool": True}, step=last)


if __name__ == "__main__":
    main()

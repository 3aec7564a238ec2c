"""python live_race.py HOLD STEPS CONFIG: calls the operators of faulty_operators.py as torch.ops, some of them a step.

After its last step it waits until the file HOLD is gone.
"""

import pathlib
import sys
import time

import faulty_operators
import torch
from msprobe.pytorch import PrecisionDebugger

hold, steps, config = sys.argv[1:]
torch.manual_seed(7)
for operator in (faulty_operators.double, faulty_operators.off_by_a_percent, faulty_operators.races):
    torch.library.custom_op(f"faulty_operators::{operator.__name__}", operator, mutates_args=())
debugger = PrecisionDebugger(config_path=config)
for _ in range(int(steps)):
    debugger.start()
    x = torch.randn(8)
    torch.ops.faulty_operators.double(x)
    torch.ops.faulty_operators.off_by_a_percent(x)
    torch.ops.faulty_operators.races(x)
    debugger.stop()
    debugger.step()
while pathlib.Path(hold).exists():
    time.sleep(0.02)

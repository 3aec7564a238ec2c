"""Ten steps, a line, and, once a file is there, ten more."""

import pathlib
import sys
import time

import torch
from msprobe.pytorch import PrecisionDebugger

dump_path, go = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
debugger = PrecisionDebugger(dump_path=str(dump_path), task="statistics", level="mix")
for step in range(20):
    if step == 10:
        print("half", flush=True)
        while not go.exists():
            time.sleep(0.05)
    debugger.start(model)
    model(torch.ones(2, 4)).sum().backward()
    debugger.stop()
    debugger.step()
debugger.wait()

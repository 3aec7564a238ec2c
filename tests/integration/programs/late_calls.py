"""A thread that is always in a call, of the step that the main thread ends meanwhile: late_calls.py --config FILE."""

import argparse
import threading

import torch
from msprobe.pytorch import PrecisionDebugger
from say import say

STEPS = 60

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--config", required=True)
options = parser.parse_args()
torch.set_num_threads(1)
debugger = PrecisionDebugger(options.config)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 32))
x = torch.randn(4, 32)
ended = threading.Event()


def work():
    while not ended.is_set():
        model(x).sum().backward()


worker = threading.Thread(target=work)
worker.start()
for _ in range(STEPS):
    debugger.start(model)
    for _ in range(4):
        model(x).sum().backward()
    debugger.stop()
    debugger.step()
ended.set()
worker.join()
say("ENDED")

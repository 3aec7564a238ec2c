"""Captures a step while it may start threads, four while it may not, and two once it may again.

few_threads.py config.json    Prints FEW when the limit is there, LIFTED when it is gone, and END.
"""

import resource
import sys
import time
from pathlib import Path

import torch
from say import say


def main():
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    for step in range(7):
        debugger.start()
        torch.add(torch.ones(4), 1)
        debugger.stop()
        debugger.step()
        if step == 0:
            debugger.wait(60)
            # Fewer than there are: one that ends, as the stream's does with its server, is not replaced.
            resource.setrlimit(resource.RLIMIT_NPROC, (len(list(Path("/proc/self/task").iterdir())) - 3, 64))
            say("FEW")
        elif step == 4:
            resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))
            say("LIFTED")
        time.sleep(2)  # for attempts to connect
    say("END")


main()

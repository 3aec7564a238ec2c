"""Captures two steps where this user may start no further thread, and two once it may. few_threads.py config.json"""

import resource
import sys
import time

import torch
from say import say


def main():
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    for step in range(4):
        if step == 2:
            resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))
        debugger.start()
        torch.add(torch.ones(4), 1)
        debugger.stop()
        debugger.step()
        time.sleep(1)  # for attempts to connect
    say("END")


main()

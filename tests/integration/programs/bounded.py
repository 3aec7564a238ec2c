"""Captures small tensors step by step until a file appears, and prints its progress: STEP n, and END at its last line.

bounded.py config.json FILE
"""

import sys
import time
from pathlib import Path

import torch
from say import say


def main():
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    x = torch.rand(128, 128)
    step = 0
    end = Path(sys.argv[2])
    while not end.exists():
        debugger.start()
        for _ in range(8):
            x = torch.add(x, 1)
        debugger.stop()
        debugger.step()
        say(f"STEP {step}")
        step += 1
        time.sleep(0.1)  # a step of a job; the server looks once a second
    say("END")


if __name__ == "__main__":
    main()

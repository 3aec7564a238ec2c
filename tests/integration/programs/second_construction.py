"""A second construction, class-method calls, start/stop pairs in one step, step without stop, exit without stop."""

import sys

import torch
from say import say


def main():
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    try:
        PrecisionDebugger.start()
    except Exception as error:  # whatever it is, the test reads it
        say("BEFORE CONSTRUCTION", type(error).__name__, error)
    first = PrecisionDebugger(config_path=sys.argv[1])
    second = PrecisionDebugger(config_path=sys.argv[2])
    say("SAME", first is second)
    # Step 0: two pairs.
    PrecisionDebugger.start()
    torch.abs(torch.ones(2))
    PrecisionDebugger.stop()
    torch.neg(torch.ones(2))  # between the pairs: not recorded
    first.start()
    torch.abs(torch.ones(2))
    first.stop()
    first.step()
    # Step 1: no stop.
    first.start()
    torch.abs(torch.ones(2))
    first.step()
    # Step 2: neither stop nor step before the interpreter ends.
    first.start()
    torch.abs(torch.ones(2))


if __name__ == "__main__":
    main()

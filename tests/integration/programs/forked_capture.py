"""A child captures a step, forked before or after the parent's first start(); the parent goes on meanwhile."""

import os
import sys

import torch
from say import say


def main():
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])

    def step():
        debugger.start()
        torch.abs(torch.ones(2))
        debugger.stop()
        debugger.step()

    if sys.argv[2] == "after":
        step()
        debugger.wait()  # the parent is connected
    process = os.fork()
    if process == 0:
        step()
        passes = []
        debugger.replay(lambda: passes.append(None))
        say("REPLAYED", len(passes))
        debugger.wait()
        sys.exit(0)
    say("CHILD", process)
    say("CHILD ENDED", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    for _ in range(3):
        step()
    debugger.wait()
    say("PARENT", os.getpid())


if __name__ == "__main__":
    main()

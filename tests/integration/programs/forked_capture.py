"""A child captures a step, forked before or after the parent's first start(), or after it by C code, which tells Python
nothing; the parent goes on meanwhile."""

import ctypes
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

    if sys.argv[2] != "before":
        step()
        debugger.wait()  # the parent is connected
    process = ctypes.PyDLL(None).fork() if sys.argv[2] == "after-in-c" else os.fork()
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

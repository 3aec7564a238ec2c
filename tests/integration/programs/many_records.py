"""200,000 records in one step: prints the cost of a block of 1,000 at its begin and at its end.

Each cost is a ratio of processor times: of 1,000 calls that are recorded, to as many right behind them that are not.
"""

import sys
import time

import torch
from say import say

BLOCKS, EDGE = 200, 40


def cost(call, x):
    begun = time.thread_time()
    for _ in range(1000):
        call(x)
    return time.thread_time() - begun


def main() -> None:
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    x = torch.linspace(-1, 1, 16)
    unrecorded = torch.ops.aten.abs.default
    debugger.start()
    for _ in range(1000):
        torch.abs(x)
        unrecorded(x)
    ratios = [cost(torch.abs, x) / cost(unrecorded, x) for _ in range(BLOCKS)]
    debugger.stop()
    counters = debugger._agent.counters()
    assert counters["fragments_dropped"] == 0
    say("EMITTED", counters["fragments_emitted"])
    say("FIRST", *ratios[:EDGE])
    say("LAST", *ratios[-EDGE:])


if __name__ == "__main__":
    main()

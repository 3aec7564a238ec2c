"""200,000 records in one step: prints the median CPU time of the first and of the last 20 blocks of 1,000."""

import statistics
import sys
import time

import torch
from say import say

BLOCKS, EDGE = 200, 20


def main() -> None:
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    x = torch.linspace(-1, 1, 16)
    took = []
    debugger.start()
    for _ in range(1000):
        torch.abs(x)
    for _ in range(BLOCKS):
        begun = time.thread_time()
        for _ in range(1000):
            torch.abs(x)
        took.append(time.thread_time() - begun)
    debugger.stop()
    counters = debugger._agent.counters()
    assert counters["fragments_dropped"] == 0
    say("EMITTED", counters["fragments_emitted"])
    say("FIRST", statistics.median(took[:EDGE]), "LAST", statistics.median(took[-EDGE:]))


if __name__ == "__main__":
    main()

"""Prints how often the main thread asks malloc for memory in a plain step and in a captured one (LD_PRELOAD:
tests/malloc_count)."""

import ctypes
import sys

import torch
from say import say

STEPS = 6


def main() -> None:
    torch.set_num_threads(1)
    calls = ctypes.CDLL(None).malloc_calls
    calls.restype = ctypes.c_uint64
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.Sequential(*(torch.nn.TransformerEncoder(layer, 1) for _ in range(6))).train()
    x = torch.randn(2, 16, 64)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    found = {}
    for captured in (False, True):
        for _ in range(STEPS):
            if captured:
                debugger.start(model=model)
            begun = calls()
            with torch.no_grad():
                model(x)
            found[captured] = calls() - begun
            if captured:
                debugger.stop()
                debugger.step()
                debugger.wait(120)
    records = debugger._agent.counters()["fragments_emitted"] // STEPS
    say("PLAIN", found[False], "CAPTURED", found[True], "RECORDS", records)


if __name__ == "__main__":
    main()

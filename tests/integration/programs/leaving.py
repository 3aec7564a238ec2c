"""Captures steps of tensors until it is told to end, and prints its progress: STEP n, and END at its last line.

leaving.py config.json STEPS [own|wait]    own: with a handler of SIGINT of its own, which says HANDLED
                                           wait: captures its last step at SIGUSR1, says WAITING and calls
                                           debugger.wait()
"""

import signal
import sys

import torch
from say import say


def main():
    from msprobe.pytorch import PrecisionDebugger

    if sys.argv[3:] == ["own"]:
        signal.signal(signal.SIGINT, lambda *_: say("HANDLED"))
    waits = sys.argv[3:] == ["wait"]
    if waits:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # for sigwait(), in threads to come too
    debugger = PrecisionDebugger(config_path=sys.argv[1])
    steps = int(sys.argv[2])
    x = torch.rand(512, 512)
    for step in range(steps):
        if waits and step == steps - 1:
            signal.sigwait({signal.SIGUSR1})
        debugger.start()
        for _ in range(8):
            x = torch.add(x, 1).relu()
        debugger.stop()
        debugger.step()
        say(f"STEP {step}")
    if waits:
        say("WAITING")
        debugger.wait(100)
    say("END")


if __name__ == "__main__":
    main()

"""Forks while capturing: children compute and exit as they like, the parent goes on. A DataLoader and programs too."""

import os
import subprocess
import sys

import torch
from say import say


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.mul(torch.tensor(float(index)), index)


def child(status):
    for _ in range(50):
        torch.add(torch.ones(2), 1)
    sys.stdout.flush()
    if status is None:
        sys.exit(0)  # the ordinary way out, with every exit handler
    os._exit(status)


def main():
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    debugger.start()
    torch.abs(torch.ones(2))
    for status in (None, 3):
        process = os.fork()
        if process == 0:
            say("CHILD", os.getpid())
            child(status)
        _, ended = os.waitpid(process, 0)
        say("CHILD ENDED", os.waitstatus_to_exitcode(ended))
    sys.stdout.write("WRITTEN BEFORE A FORK\n")  # and not flushed
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)
    sys.stdout.flush()
    loaded = list(torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork"))
    say("LOADED", torch.cat(loaded).tolist())
    torch.neg(torch.ones(2))
    debugger.stop()
    debugger.step()
    debugger.wait()
    say("PARENT DONE")


if __name__ == "__main__":
    main()

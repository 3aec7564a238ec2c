"""Kinds of jobs for tests: what an item's payload says happens."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from msprobe_client.errors import InvalidArgument
from msprobe_client.jobs import Work


def run(work: Work) -> bytes:
    word, _, rest = work.payload.decode().partition(" ")
    if word == "kill":
        os.kill(os.getpid(), int(rest))
    elif word == "kill-once" and work.attempt == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    elif word == "exit":
        os._exit(int(rest))
    elif word == "refuse":
        raise InvalidArgument("this item is refused")
    elif word == "raise":
        raise ValueError("a defect")
    elif word == "long":
        return b"x" * (64 * 1024 + 1)
    elif word == "sleep":
        time.sleep(float(rest))
    elif word == "mark":  # where, and how long it goes on
        place, seconds = rest.rsplit(" ", 1)
        Path(place).write_text(str(os.getpid()))
        time.sleep(float(seconds))
    print(work.payload, file=sys.stderr)
    return work.payload + b" done on " + work.device.encode()

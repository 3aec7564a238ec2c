"""The time of a thread as if it had its core alone: what other processes take of a busy machine does not count, waiting
for anything but a core does."""

from __future__ import annotations

import time
from pathlib import Path


def own_seconds() -> float:
    """Of the calling thread, from any beginning: the time that passes less the time that it was ready and had no core
    (the second number of schedstat, see sched-stats in the kernel's documents)."""
    without_core = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.perf_counter() - without_core / 1e9

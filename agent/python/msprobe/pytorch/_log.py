"""Lines for people, in the form scripts know: ``2026-11-21 01:53:55 (10736) [INFO] text``."""

import contextlib
import os
import sys
import time

_LEVELS = {"DEBUG": 0, "INFO": 1, "WARNING": 2, "ERROR": 3}
_rank: int | None = None


def set_rank(rank: int | None) -> None:
    """The rank shown in each line; None: none is."""
    global _rank
    _rank = rank


def log(level: str, text: str) -> None:
    """Writes one line to stdout, unless MSPROBE_LOG_LEVEL (0 debug .. 3 error, default 1) is above its level.

    Any thread. A line is one write, so that lines of other threads stay whole.
    """
    try:
        threshold = int(os.environ.get("MSPROBE_LOG_LEVEL", "1"))
    except ValueError:
        threshold = 1
    if _LEVELS[level] < threshold:
        return
    rank = f" [rank {_rank}]" if _rank is not None else ""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError, ValueError):  # stdout may be closed: the run goes on
        sys.stdout.write(f"{now} ({os.getpid()}){rank} [{level}] {text}\n")
        sys.stdout.flush()


def info(text: str) -> None:
    log("INFO", text)


def warning(text: str) -> None:
    log("WARNING", text)


def error(text: str) -> None:
    log("ERROR", text)

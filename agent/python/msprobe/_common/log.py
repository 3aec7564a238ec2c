"""Lines for people, in the form scripts know: ``2026-11-21 01:53:55 (10736) [INFO] text``."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time

# Characters that would begin another line, move a terminal's cursor or turn the direction of writing. Some of the
# printed text comes from others: from the server, and from users who ask through it.
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LEVELS = {"DEBUG": 0, "INFO": 1, "WARNING": 2, "ERROR": 3}
# The server reads the same variable, and has names.
_THRESHOLDS = {str(at): at for at in _LEVELS.values()} | {name.lower(): at for name, at in _LEVELS.items()} | {"off": 4}
_rank: int | None = None


def set_rank(rank: int | None) -> None:
    """Sets the rank that each line shows. None: lines show no rank."""
    global _rank
    _rank = rank


def log(level: str, text: str) -> None:
    """Writes one line to stdout, unless MSPROBE_LOG_LEVEL (0 debug .. 3 error or these names, default 1) is above its
    level. A control character in it stands as \\n or \\x1b.

    Any thread. A line is one write, so that lines of other threads stay whole.
    """
    if _LEVELS[level] < _THRESHOLDS.get(os.environ.get("MSPROBE_LOG_LEVEL", ""), _LEVELS["INFO"]):
        return
    text = _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    rank = f" [rank {_rank}]" if _rank is not None else ""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError, ValueError):  # stdout may be closed: the run goes on
        sys.stdout.write(f"{now} ({os.getpid()}){rank} [{level}] {text}\n")
        sys.stdout.flush()


def debug(text: str) -> None:
    log("DEBUG", text)


def info(text: str) -> None:
    log("INFO", text)


def warning(text: str) -> None:
    log("WARNING", text)


def error(text: str) -> None:
    log("ERROR", text)

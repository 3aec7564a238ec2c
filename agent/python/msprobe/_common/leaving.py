"""The end of the process: what was captured is waited for, which is said, and Ctrl-C leaves."""

import contextlib
import math
import signal
import sys
import threading
import time
from typing import Any

from msprobe._common import log

_LONGEST_SECONDS = 120.0  # for what goes on arriving, and for files that are being written
_INTERRUPTED_SECONDS = 1.0  # of a program that Ctrl-C has ended
_SILENT_SECONDS = 2.0
_SAID_EVERY_SECONDS = 15.0


def leave(agent: Any, config: Any) -> None:
    """Ends the session of a program that has ended. Never raises."""
    with _interruption() as interrupted, contextlib.suppress(Exception):
        wait = _Wait(agent, config.stall_bound_s, interrupted)
        missing = agent.close(clean=not _broke_off(), seconds=wait.longest, goes_on=wait.goes_on)
        if missing:
            why = "Ctrl-C" if interrupted.is_set() else f"after {time.monotonic() - wait.began:.0f} s"
            log.warning(f"what was captured is no longer waited for ({why}): {missing}")
        elif wait.said:
            log.info("what was captured is written")


def _broke_off() -> bool:
    """Whether an exception ended the program: then nobody knows how far the open step was to go."""
    return getattr(sys, "last_type", None) is not None and not hasattr(sys, "ps1")


class _Wait:
    """How long there is left to wait, and saying so. A server that takes something starts the standstill anew, not the
    whole wait."""

    def __init__(self, agent: Any, standstill: float, interrupted: threading.Event) -> None:
        self.longest = _INTERRUPTED_SECONDS if interrupted.is_set() else _LONGEST_SECONDS
        self.began = self._moved_at = time.monotonic()
        self.said = False
        self._agent, self._standstill, self._interrupted = agent, standstill, interrupted
        self._moved: tuple[int, ...] = ()
        self._say_at = self.began + _SILENT_SECONDS

    def goes_on(self, missing: str) -> bool:
        now = time.monotonic()
        left = self.began + self.longest - now  # in all, whatever is taken meanwhile
        idle = self._stands_still_until(now, missing) - now
        if min(left, idle) <= 0 or (self._interrupted.is_set() and self.longest > _INTERRUPTED_SECONDS):
            return False
        if now >= self._say_at:
            self.said, self._say_at = True, now + _SAID_EVERY_SECONDS
            unless = f", {idle:.0f} s if nothing is taken" if idle < left else ""
            log.warning(
                f"the program has ended; what was captured is waited for, at most {left:.0f} s more{unless}, "
                f"Ctrl-C leaves: {missing}"
            )
        return True

    def _stands_still_until(self, now: float, missing: str) -> float:
        """When a server that takes nothing has been waited for long enough; it may take its time with files."""
        counters = self._agent.counters()
        moved = (counters["durable_through"], counters["bytes_sent"])
        if moved != self._moved:
            self._moved, self._moved_at = moved, now
        if missing.startswith("not exported"):  # and nothing else
            return math.inf
        return self._moved_at + self._standstill


@contextlib.contextmanager
def _interruption() -> Any:
    """Gives an event that Ctrl-C sets; set already, where it is what ended the program. A handler of the program's own
    stays. After Ctrl-C another one ends what is left of the process at once, and prints nothing."""
    interrupted = threading.Event()
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        interrupted.set()
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL if interrupted.is_set() else signal.default_int_handler)

"""The place of a thread among those that record in a step: the same in every step and every run."""

import functools
import itertools
import threading
from typing import Any


class ThreadLanes:
    """Numbers threads from 0, anew in each step.

    Which of several threads calls first is chance, in which order they were started is not. So when one records for the
    first time, all that are alive and were started to run the same function are numbered, in the order in which they
    were started. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch = -1
        self._lanes: dict[int, tuple[Any, int]] = {}  # id -> (what keeps the id, lane)
        self._next = itertools.count()

    def current(self, epoch: int) -> int:
        """The lane of the calling thread. A greater epoch than before: another step."""
        with self._lock:
            if epoch > self._epoch:
                self._epoch, self._lanes, self._next = epoch, {}, itertools.count()
            # Not current_thread(), which would make an entry for a thread that is none of Python's.
            living = threading.enumerate()
            own = next((thread for thread in living if thread.ident == threading.get_ident()), None)
            if own is None:
                return next(self._next)
            alike = _started_for(own)
            for thread in living:
                if id(thread) not in self._lanes and _started_for(thread) == alike:
                    self._lanes[id(thread)] = (thread, next(self._next))
            return self._lanes[id(own)][1]


def _started_for(thread: threading.Thread) -> tuple[type, object]:
    target = getattr(thread, "_target", None)
    while isinstance(target, functools.partial):
        target = target.func
    target = getattr(target, "__func__", target)
    return type(thread), getattr(target, "__code__", target)

"""The slot of a thread among those that record in a step: the same in every step and every run."""

import functools
import itertools
import threading
from typing import Any


class ThreadSlots:
    """Numbers threads from 0, anew in each step.

    Which of several threads calls first is chance, in which order they were started is not. So when one records for the
    first time, all that are alive and were started to run the same function are numbered, in the order in which they
    were started. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step = -1
        self._slots: dict[int, tuple[Any, int]] = {}  # id -> (what keeps the id, slot)
        self._next = itertools.count()

    def current(self, step: int) -> int:
        """The slot of the calling thread. `step` is a greater number than before when another step has begun."""
        with self._lock:
            if step > self._step:
                self._step, self._slots, self._next = step, {}, itertools.count()
            # Not current_thread(), which would make an entry for a thread that is none of Python's.
            living = threading.enumerate()
            own = next((thread for thread in living if thread.ident == threading.get_ident()), None)
            if own is None:
                return next(self._next)
            alike = _started_for(own)
            for thread in living:
                if id(thread) not in self._slots and _started_for(thread) == alike:
                    self._slots[id(thread)] = (thread, next(self._next))
            return self._slots[id(own)][1]


def _started_for(thread: threading.Thread) -> tuple[type, object]:
    target = getattr(thread, "_target", None)
    while isinstance(target, functools.partial):
        target = target.func
    target = getattr(target, "__func__", target)
    return type(thread), getattr(target, "__code__", target)

"""Runs a gRPC call on a thread of its own, so that Ctrl-C in the caller's thread never strikes inside gRPC.

gRPC starts operations and books them in separate steps of Python code. After a KeyboardInterrupt between the two,
closing the channel waits for that call without end (about once in two hundred interruptions).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

# Answers read ahead of the caller.
_AHEAD = 16

T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M")


class Stream(Protocol[T_co]):
    def __iter__(self) -> Iterator[T_co]: ...
    def cancel(self) -> bool: ...


class Pending(Protocol[T_co]):
    def result(self, timeout: float | None = None) -> T_co: ...
    def cancel(self) -> bool: ...


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Reader(Generic[M]):
    """One call. The thread writes `_answers`, and `_call` once; the caller reads, and stops the thread when it has had
    enough.
    """

    def __init__(self, start: Callable[[], Stream[M]], ended: Callable[[Stream[M]], None] | None) -> None:
        self._start = start
        self._ended = ended
        self._answers: SimpleQueue[M | _End] = SimpleQueue()
        self._room = threading.Semaphore(_AHEAD)
        self._abandoned = threading.Event()
        self._call: Stream[M] | None = None
        self._thread = threading.Thread(target=self._run, name="msprobe-call", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            call = self._start()
            self._call = call
            if self._abandoned.is_set():
                call.cancel()
            for answer in call:
                self._room.acquire()
                if self._abandoned.is_set():
                    break
                self._answers.put(answer)
        except BaseException as caught:  # raised again in the caller's thread
            error = caught
        self._answers.put(_End(error))

    def read(self) -> Iterator[M]:
        try:
            while True:
                answer = self._answers.get()
                if isinstance(answer, _End):
                    if answer.error is not None:
                        raise answer.error
                    if self._ended is not None and self._call is not None:
                        self._ended(self._call)
                    return
                self._room.release()
                yield answer
        finally:
            self._abandoned.set()
            self._room.release()
            if self._call is not None:
                self._call.cancel()  # no effect on a call that ended
            self._thread.join()


def stream(start: Callable[[], Stream[M]], ended: Callable[[object], None] | None = None) -> Iterator[M]:
    """The call's answers as they come. Asking for the first one begins the call; leaving cancels it. ended: called with
    gRPC's call, in the caller's thread, when that has ended well.
    """
    yield from _Reader(start, ended).read()


def result(start: Callable[[], Pending[M]], ended: Callable[[object], None] | None = None) -> M:
    """The call's one answer; an interruption cancels it. ended: as for stream."""

    class One:
        def __init__(self, pending: Pending[M]) -> None:
            self.pending = pending

        def __iter__(self) -> Iterator[M]:
            yield self.pending.result()

        def cancel(self) -> bool:
            return self.pending.cancel()

    def tell(call: object) -> None:
        assert isinstance(call, One)
        if ended is not None:
            ended(call.pending)

    (answer,) = stream(lambda: One(start()), tell)
    return answer

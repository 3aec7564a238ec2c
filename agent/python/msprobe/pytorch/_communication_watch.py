"""The calls of torch.distributed of a training, shown to an observer where they happen."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch.distributed as dist

from msprobe._common.contained import UntilFirstError
from msprobe._common.swaps import AttributeSwap, CodeSwap, Swap
from msprobe.pytorch._communication import OPERATIONS

_OWN = str(Path(__file__).parents[1])
_OF_TORCH = str(Path(dist.__file__).parents[1])


class CommunicationObserver(Protocol):
    """Each is called on the program's thread, and raises nothing into it."""

    def communicating(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """The call begins. Asked for call_site(), it says where."""

    def communicated(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """It has ended: of an asynchronous one, somebody has waited for a part of it."""


class CommunicationWatch:
    """Shows the calls until close(). Calls that another one makes are shown if the observer wants inner ones."""

    def __init__(
        self, observer: CommunicationObserver, operations: tuple[str, ...] = OPERATIONS, *, inner: bool
    ) -> None:
        self._observer, self._inner = observer, inner
        self._inside = threading.local()
        self._waits: dict[Any, Callable[[], None]] = {}  # by Work
        self._contain = UntilFirstError("communication is watched")
        self._swaps: list[Swap] = []
        for name in operations if dist.is_available() else ():
            if isinstance(function := getattr(dist, name, None), types.FunctionType):
                self._swaps.append(CodeSwap(function, self._shown(name)))
        if self._swaps:
            self._swaps.append(AttributeSwap(dist.Work, "wait", self._waiting(dist.Work.wait)))
        for swap in self._swaps:
            swap.install()

    def close(self) -> None:
        for swap in reversed(self._swaps):
            if not isinstance(swap, CodeSwap) or swap.function.__code__ is swap.shim:
                swap.restore()
        self._swaps.clear()
        self._waits.clear()

    def _shown(self, name: str) -> Callable[[types.FunctionType], Any]:
        def intercept(twin: types.FunctionType) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if getattr(self._inside, "calls", False) and not self._inner:
                    return twin(*args, **kwargs)
                before, self._inside.calls = getattr(self._inside, "calls", False), True
                try:
                    self._contain(lambda: self._observer.communicating(name, args, kwargs))
                    result = twin(*args, **kwargs)
                finally:
                    self._inside.calls = before
                self._ended(name, args, kwargs, result)
                return result

            return call

        return intercept

    def _ended(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        works = [each for each in (result if isinstance(result, list) else [result]) if isinstance(each, dist.Work)]
        for work in works:
            self._waits[work] = lambda: self._observer.communicated(name, args, kwargs)
        if not works:
            self._contain(lambda: self._observer.communicated(name, args, kwargs))

    def _waiting(self, original: Any) -> Any:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(work, *args, **kwargs)
            if (ended := self._waits.pop(work, None)) is not None:
                self._contain(ended)
            return result

        return wait


def call_site() -> str:
    """ "train.py:57": the line of the program that calls, which is neither torch's nor ours."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_OWN, _OF_TORCH)):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


__all__ = ["CommunicationObserver", "CommunicationWatch", "call_site"]

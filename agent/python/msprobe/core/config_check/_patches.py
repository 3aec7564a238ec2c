"""Random calls by the place that makes them, and Megatron's arguments: functions are replaced, and put back."""

from __future__ import annotations

import functools
import linecache
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

from msprobe.core.config_check._framework import Framework

# Code and line of each frame, the innermost first.
_Place = tuple[tuple[CodeType, int], ...]


class Patches:
    """The process's one set of replacements. Threads: any."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    # Guarded by _lock.
    _calls: ClassVar[dict[str, dict[_Place, int]]] = {}
    _arguments: ClassVar[dict[str, Any]] = {}
    _undo: ClassVar[list[Callable[[], None]]] = []

    @classmethod
    def put_in(cls, framework: Framework) -> None:
        """Once; a second call changes nothing."""
        with cls._lock:
            if cls._undo:
                return
            cls._calls.clear()
            for holder, attribute, name in (*_general(), *framework.random_functions()):
                function = getattr(holder, attribute, None)  # a version may lack it
                if function is not None:
                    cls._replace(holder, attribute, cls._counting(function, name, framework))
            cls._watch_megatron()

    @classmethod
    def take_out(cls) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
        """What was counted, as {operation: [{"count", "stack"}]}, and Megatron's arguments. Functions are as before."""
        with cls._lock:
            for undo in reversed(cls._undo):
                undo()
            cls._undo.clear()
            calls = {
                name: [{"count": count, "stack": _stack(place)} for place, count in places.items()]
                for name, places in cls._calls.items()
            }
            return calls, dict(cls._arguments)

    @classmethod
    def _replace(cls, holder: Any, attribute: str, replacement: Any) -> None:
        """Held by itself or inherited: undone, it is as it was."""
        own = vars(holder).get(attribute)
        setattr(holder, attribute, replacement)
        cls._undo.append(
            (lambda: delattr(holder, attribute)) if own is None else (lambda: setattr(holder, attribute, own))
        )

    @classmethod
    def _counting(cls, function: Any, name: str, framework: Framework) -> Any:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if not framework.is_compiling():
                cls._count(name, sys._getframe(1))
            return function(*args, **kwargs)

        return counted

    @classmethod
    def _count(cls, name: str, frame: FrameType | None) -> None:
        frames = []
        while frame is not None:
            frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        with cls._lock:
            places = cls._calls.setdefault(name, {})
            places[tuple(frames)] = places.get(tuple(frames), 0) + 1

    @classmethod
    def _watch_megatron(cls) -> None:
        try:
            from megatron import training  # type: ignore[import-not-found, unused-ignore]

            get_args = training.get_args
        except Exception:  # not installed, or another version's: it may raise anything
            return

        @functools.wraps(get_args)
        def watched(*args: Any, **kwargs: Any) -> Any:
            found = get_args(*args, **kwargs)
            if not cls._arguments and hasattr(found, "__dict__"):
                cls._arguments.update(vars(found))
            return found

        cls._replace(training, "get_args", watched)


def _general() -> Iterator[tuple[Any, str, str]]:
    for name in ("random", "randint", "uniform", "choice"):
        yield random, name, f"random.{name}"
    try:
        import numpy
    except ImportError:
        return
    for name in ("rand", "randint", "choice", "normal"):
        yield numpy.random, name, f"np.random.{name}"


def _stack(place: _Place) -> list[str]:
    """The outermost frame first."""
    return [
        f"File {Path(code.co_filename).absolute()}, line {line}, in {code.co_name}, "
        f"{linecache.getline(code.co_filename, line).strip()}"
        for code, line in reversed(place)
    ]

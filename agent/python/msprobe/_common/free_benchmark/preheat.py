"""The limit that each API finds for itself, in the first steps, from calls that also run on the CPU."""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from typing import Any

_FIRST = 2.05


class Preheat:
    """The first step counts each API's calls. In each later step of the preheat some of them, others each time, also
    run on the CPU; when the step has ended, each API's limit follows from them:

    1. Where results that the CPU agrees with lie below all that it does not, the limit lies between and stays.
    2. Where the CPU agrees with all, limit - 1 is halved, or doubled where one of them lay above it.
    3. Otherwise it stays as it is for now. It is never below the standing limit of the dtype.

    Threads: any.
    """

    def __init__(self, steps: int, max_sample: int) -> None:
        self._steps, self._max_sample = steps, max_sample
        self._lock = threading.Lock()
        self._number = -1  # of the step, among those that were seen
        self._step: int | None = None
        self._expected: Counter[str] = Counter()  # calls in the first step
        self._calls: Counter[str] = Counter()  # in this step
        self._limits: dict[tuple[str, Any], float] = {}
        self._least: dict[tuple[str, Any], float] = {}
        self._settled: set[tuple[str, Any]] = set()
        self._seen: dict[tuple[str, Any], list[tuple[float, bool]]] = defaultdict(list)

    def begin(self, api: str, step: int) -> bool:
        """A call of the API begins; whether it is one that also runs on the CPU."""
        with self._lock:
            if step != self._step:
                self._step, self._number = step, self._number + 1
                self._adjust()
                self._calls.clear()
            self._calls[api] += 1
            if self._number == 0:
                self._expected[api] += 1
            calls = self._expected[api]
            if not 0 < self._number < self._steps or calls == 0:
                return False
            wanted = min(math.ceil(calls / self._steps), self._max_sample)
            return (self._calls[api] - self._number) % calls in {self._steps * i % calls for i in range(wanted)}

    @property
    def counting(self) -> bool:
        """The first step only counts."""
        return self._number == 0

    def limit(self, api: str, dtype: Any) -> float:
        return self._limits.get((api, dtype), _FIRST)

    def note(self, api: str, dtype: Any, ratio: float, agrees: bool, least: float) -> None:
        """What a sampled call gave. least: the standing limit of the dtype."""
        with self._lock:
            self._least[api, dtype] = least
            self._seen[api, dtype].append((ratio, agrees))

    def _adjust(self) -> None:
        for key, seen in self._seen.items():
            if key in self._settled:
                continue
            limit = self._limits.get(key, _FIRST)
            right = [ratio for ratio, agrees in seen if agrees]
            wrong = [ratio for ratio, agrees in seen if not agrees]
            if wrong and (not right or max(right) < min(wrong)):
                limit = min(limit, (max(right, default=1.0) + min(wrong)) / 2)
                self._settled.add(key)
            elif not wrong:
                limit = 1 + (limit - 1) * (2 if max(right) > limit else 0.5)
            self._limits[key] = max(limit, self._least[key])
        self._seen.clear()


__all__ = ["Preheat"]

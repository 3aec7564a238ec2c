"""The search for the smallest set of modules whose repair makes the final output agree. Knows nothing of what runs.

A repair takes out what a module itself adds to the error, inside and out: it covers all modules that lie in it, and
leaves what comes from elsewhere. So a set agrees where it covers every fault, and a larger one agrees then too.

Candidates stand children first, so that the first k of them cover themselves alone. Bisection over k finds the last
fault; with that one kept repaired, bisection over those before it finds the last but one; and so on, until the repair
of those found is enough. With N candidates and m faults that takes at most m * (ceil(log2 N) + 1) + 1 runs, the first
without repair among them, and one more where there are several faults.

Without a limit there is a fault, and one run more, the second, which repairs all of them: what is left then is
rounding, and the limit lies between the two distances, as many times above the one as below the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msprobe_client.errors import FailedPrecondition, InvalidArgument


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. NaN: its final output has one."""

    repaired: tuple[str, ...]
    distance: float
    agrees: bool


@dataclass(frozen=True, slots=True)
class Found:
    names: tuple[str, ...]  # in the candidates' order; none: the run agrees as it is
    trials: tuple[Trial, ...] = field(default=())


def bound(candidates: int, faults: int) -> int:
    """The most runs that a search needs."""
    bisection = math.ceil(math.log2(candidates)) if candidates > 1 else 0
    return faults * (bisection + 1) + 1 + (faults > 1)


def smallest(
    candidates: Sequence[str] | Callable[[], Sequence[str]],
    distance: Callable[[Sequence[str]], float],
    limit: float | None,
    note: Callable[[Trial], None] = lambda trial: None,
) -> Found:
    """The set, by runs of `distance`, which repairs these candidates and says how far the final output then is.

    candidates: children first; a callable is asked after the first run, which repairs nothing. limit: the largest
    distance that agrees; None: there is a fault, and what agrees is found out. FailedPrecondition: not even the repair
    of all of them agrees.
    """
    if limit is not None and (not limit >= 0 or math.isinf(limit)):
        raise InvalidArgument(f"the limit is {limit}; it should be a distance of at least 0")
    trials: list[Trial] = []

    def measured(repaired: Sequence[str]) -> float:
        value = float(distance(repaired))
        if value < 0:
            raise FailedPrecondition(
                f"the distance is {value:g}; it should be at least 0: the norm of the difference, or its absolute value"
            )
        return value

    def judged(repaired: Sequence[str], value: float, most: float) -> bool:
        trials.append(Trial(tuple(repaired), value, value <= most))
        note(trials[-1])
        return trials[-1].agrees

    first = measured(())
    most = 0.0 if limit is None else limit
    if judged((), first, most):
        return Found((), tuple(trials))
    names = list(candidates() if callable(candidates) else candidates)
    if not names:
        raise FailedPrecondition("there is no module to repair: the program captures none, or no name fits")
    tried = limit is None
    if limit is None:
        rest = measured(names)
        most = _between(first, rest, len(names))
        judged(names, rest, most)

    def agrees(repaired: Sequence[str]) -> bool:
        return judged(repaired, measured(repaired), most)

    found: list[int] = []  # places among the candidates, the last first
    low, end = 0, len(names)  # the first `low` do not suffice; the first `end` do, or nobody has tried yet
    while True:
        high = end
        while high - low > 1:
            middle = (low + high) // 2
            if agrees(_those(names, found, middle)):
                high = middle
                tried = True
            else:
                low = middle
        found.append(high - 1)
        if agrees(_those(names, found, 0)):
            return Found(tuple(_those(names, found, 0)), tuple(trials))
        if not tried and (len(names) == 1 or not agrees(names)):
            raise FailedPrecondition(
                f"the final output is {trials[-1].distance:g} from the golden's with all {len(names)} modules "
                "repaired: what is wrong lies outside of them (in modules that no name took in, in the root module's "
                "own code or between modules, or in inputs that are not the golden's), or the module at fault makes "
                "more of its inputs' rounding than the limit allows"
            )
        tried, low, end = True, 0, high - 1
        if end == 0:
            raise FailedPrecondition("a set of modules agreed in one run and not in the next: is the program random?")


def _between(first: float, rest: float, modules: int) -> float:
    """The geometric mean; of a first distance that is no number, twice the other."""
    if not rest < first and math.isfinite(first):
        raise FailedPrecondition(
            f"the final output is {rest:g} from the golden's with all {modules} modules repaired, and {first:g} "
            "without repair: what is wrong lies outside of them"
        )
    return math.sqrt(first) * math.sqrt(rest) if math.isfinite(first) else 2 * rest


def _those(names: Sequence[str], found: Sequence[int], first: int) -> list[str]:
    """The first so many, and those found."""
    return [name for place, name in enumerate(names) if place < first or place in found]


__all__ = ["Found", "Trial", "bound", "smallest"]

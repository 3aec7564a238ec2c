"""What is compared, and what was found, one row an output. Frozen; nothing here knows protobuf or torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msprobe_client.model import Rank

Adds: TypeAlias = Literal["adds", "passes", "skip"]
# The reason of a module whose step has no second pass, as far as the run says.
NOT_RUN = (
    "it did not run on the golden's inputs; call debugger.local_error in the program, and name its run in the store: a "
    "plain dump does not tell its second pass"
)


@dataclass(frozen=True, slots=True)
class Sides:
    """A step and rank of the run, and of the golden. again: the step of the second pass; None: there is none."""

    run: str
    step: int
    rank: Rank
    golden: str
    golden_step: int
    golden_rank: Rank
    again: int | None = None


@dataclass(frozen=True, slots=True)
class LocalErrorRow:
    """Errors are relative: the norm of the difference over that of the golden's output. Infinite: only one side is
    finite somewhere."""

    name: str  # "Module.layers.0.mlp.MLP.forward.0.output.0"; of a skip: the call
    step: int
    rank: str
    kind: str  # "module" or "api"
    verdict: Adds
    total: float | None = None  # of the run's output
    added: float | None = None  # of what comes of the golden's inputs
    inherited: float | None = None  # between these two: what comes of other inputs
    limit: float | None = None  # of `added`
    dtype: str = ""
    reason: str = ""  # of a skip


def worst_first(rows: Iterable[LocalErrorRow]) -> list[LocalErrorRow]:
    """By what is added, in times of its limit; what was skipped comes last; else as they came."""

    def weight(row: LocalErrorRow) -> float:
        return -math.inf if row.added is None or not row.limit else row.added / row.limit

    return sorted(rows, key=lambda row: -weight(row))

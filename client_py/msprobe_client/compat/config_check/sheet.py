"""A sheet of result.xlsx."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal["pass", "warning", "error"]

ERROR: Verdict = "error"
WARNING: Verdict = "warning"
PASS: Verdict = "pass"


@dataclass(frozen=True, slots=True)
class Sheet:
    name: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    verdict: Verdict  # pass_check of the summary


def worst(levels: Iterable[object]) -> Verdict:
    """error if any row is one, else warning if any is one, else pass."""
    seen = set(levels)
    return ERROR if ERROR in seen else WARNING if WARNING in seen else PASS

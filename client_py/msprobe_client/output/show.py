"""Values in a table, for people."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from msprobe_client.model import Number, Rank
from msprobe_client.output.json_rows import not_finite

_BINARY = 1024
_FRAMES = 8
_OF_TORCH = re.compile(r"File [^,]*[/\\](?:site|dist)-packages[/\\]torch[/\\]")


def time(value: datetime) -> str:
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(value: int) -> str:
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _BINARY:
            return f"{value} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _BINARY
    return f"{amount:.1f} TiB"


def number(value: Number) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:.6g}" if math.isfinite(value) else not_finite(value)


def value(item: Number | str) -> str:
    """A number, or the text of an argument."""
    return item if isinstance(item, str) else number(item)


def shape(value: Sequence[int]) -> str:
    return str(list(value))


def ranks(value: Sequence[Rank]) -> str:
    """rank0-7, proc123"""
    parts = []
    for (kind, _), group in groupby(enumerate(sorted(value)), lambda item: (item[1].kind, item[1].number - item[0])):
        numbers = [rank.number for _, rank in group]
        last = f"-{numbers[-1]}" if len(numbers) > 1 else ""
        parts.append(f"{kind}{numbers[0]}{last}")
    return ", ".join(parts)


def stack(lines: Sequence[str]) -> list[str]:
    """The innermost frames, from the first that is not torch's own, and how many are left out."""
    first = next((place for place, line in enumerate(lines) if not _OF_TORCH.match(line)), 0)
    shown = [" ".join(line.split()) for line in lines[first : first + _FRAMES]]
    left = len(lines) - first - len(shown)
    return [*shown, f"... and {left} more; --format json has all"] if left > 0 else shown


def gaps(value: Sequence[Any]) -> str:
    return ", ".join(f"{gap.reason}: {gap.fragments} fragments, {gap.payloads} payloads" for gap in value)

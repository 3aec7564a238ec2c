"""random: how often each place in the program drew random numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from msprobe_client.compat.config_check import pack
from msprobe_client.compat.config_check.sheet import ERROR, PASS, Sheet
from msprobe_client.errors import DataError

_COLUMNS = ("op", "rank", "bench_stack", "cmp_stack", "bench_count", "cmp_count", "check_result")
_FRAME = re.compile(r"File (.*?), line \d+, in (\S+), (.*)", re.DOTALL)
# Of a frame: the mean of same file name, same function, and likeness of the line of code.
_ALIKE = 0.8
_ABSENT = "no match stack"


def sheet(bench: pack.Pack, cmp: pack.Pack) -> Sheet | None:
    if not (bench.under(pack.RANDOM) and cmp.under(pack.RANDOM)):
        return None
    theirs, ours = _ranks(bench), _ranks(cmp)
    rows = [
        row
        for rank in sorted({*theirs, *ours})
        for op in sorted({*theirs.get(rank, {}), *ours.get(rank, {})})
        for row in _rows(op, rank, theirs.get(rank, {}).get(op, []), ours.get(rank, {}).get(op, []))
    ]
    return Sheet("random", _COLUMNS, rows, PASS if all(row[-1] for row in rows) else ERROR)


def _ranks(side: pack.Pack) -> dict[int, dict[str, list[dict[str, Any]]]]:
    found = {}
    for name in side.under(pack.RANDOM):
        match = re.fullmatch(r"random/rank(\d+)\.json", name)
        if match is None:
            raise DataError(f"{side.path}: the member {name} is not random/rank{{R}}.json")
        document = side.document(name)
        if not all(_are_calls(calls) for calls in document.values()):
            raise DataError(f'{side.path}: the member {name} has an operation without a list of {{"count", "stack"}}')
        found[int(match[1])] = document
    return found


def _are_calls(calls: Any) -> bool:
    return isinstance(calls, list) and all(
        isinstance(call, dict)
        and isinstance(call.get("count"), int)
        and isinstance(call.get("stack"), list)
        and all(isinstance(frame, str) for frame in call["stack"])
        for call in calls
    )


def _rows(op: str, rank: int, bench: list[dict[str, Any]], cmp: list[dict[str, Any]]) -> Iterator[list[Any]]:
    for call in bench:
        stack, count = "\n".join(call["stack"]), call["count"]
        partner = next((other for other in cmp if _match(other["stack"], call["stack"])), None)
        if partner is None:
            yield [op, rank, stack, _ABSENT, count, 0, False]
        else:
            yield [op, rank, stack, "\n".join(partner["stack"]), count, partner["count"], count == partner["count"]]
    for other in cmp:
        if not any(_match(call["stack"], other["stack"]) for call in bench):
            yield [op, rank, _ABSENT, "\n".join(other["stack"]), 0, other["count"], False]


def _match(one: list[str], other: list[str]) -> bool:
    return len(one) == len(other) and all(map(_alike, one, other))


def _alike(one: str, other: str) -> bool:
    a, b = _FRAME.fullmatch(one), _FRAME.fullmatch(other)
    if a is None or b is None:
        return False
    same_file = PurePath(a[1]).name == PurePath(b[1]).name
    code = 1.0 if a[3] == b[3] else difflib.SequenceMatcher(None, a[3], b[3]).ratio()
    return (same_file + (a[2] == b[2]) + code) / 3 >= _ALIKE

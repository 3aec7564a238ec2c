"""dataset and weights: four statistics of each tensor of each step and rank, and its checksum if both packs have it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msprobe_client.compat.config_check import pack
from msprobe_client.compat.config_check.sheet import ERROR, PASS, Sheet
from msprobe_client.errors import DataError

_STATISTICS = ("max", "min", "mean", "norm")
_DIFFERENCES = tuple(f"{name}_relative_diff" for name in _STATISTICS)
_NOTHING = [None] * len(_STATISTICS)
# Levels of lists within lists of a call's arguments.
_DEPTH = 100


def dataset_sheet(bench: pack.Pack, cmp: pack.Pack) -> Sheet | None:
    """Of the steps and ranks that both packs have."""
    if not (bench.under(pack.DATASET) and cmp.under(pack.DATASET)):
        return None
    rows = [
        [step, rank, *row]
        for step, rank, member in _members(bench, pack.DATASET, "dataset.json")
        if member in cmp
        for row in _tree(bench.document(member), cmp.document(member), _digests(bench, cmp, member))
    ]
    return _sheet(pack.DATASET, "tag", rows)


def weights_sheet(bench: pack.Pack, cmp: pack.Pack) -> Sheet | None:
    """Of the steps and ranks that the bench has."""
    if not (bench.under(pack.WEIGHTS) and cmp.under(pack.WEIGHTS)):
        return None
    rows = [
        [step, rank, *row]
        for step, rank, member in _members(bench, pack.WEIGHTS, "weight.json")
        for row in _weights(
            bench.document(member), cmp.document(member) if member in cmp else {}, _digests(bench, cmp, member)
        )
    ]
    return _sheet(pack.WEIGHTS, "weight_name", rows)


def _sheet(name: str, of: str, rows: list[list[Any]]) -> Sheet:
    rows.sort(key=lambda row: (row[0], row[1]))
    verdict = PASS if all(row[3] is True for row in rows) else ERROR
    return Sheet(name, ("step", "rank", of, "equal", *_DIFFERENCES), rows, verdict)


def _members(side: pack.Pack, folder: str, file: str) -> Iterator[tuple[int, int, str]]:
    for name in side.under(folder):
        match = re.fullmatch(rf"{folder}/step(\d+)/rank(\d+)/{re.escape(file)}", name)
        if match is None:
            raise DataError(f"{side.path}: the member {name} is not {folder}/step{{N}}/rank{{R}}/{file}")
        yield int(match[1]), int(match[2]), name


def _digests(bench: pack.Pack, cmp: pack.Pack, member: str) -> tuple[dict[str, Any], dict[str, Any]]:
    name = f"{pack.CHECKSUMS}/{member}"
    return (bench.document(name), cmp.document(name)) if name in bench and name in cmp else ({}, {})


def _tree(
    bench: dict[str, Any],
    cmp: dict[str, Any],
    digests: tuple[dict[str, Any], dict[str, Any]],
    path: str = "",
    depth: int = 0,
) -> Iterator[list[Any]]:
    """Rows of arguments. What is no tensor on the bench's side has none."""
    for key, value in bench.items():
        tag = f"{path}.{key}" if path else key
        if key not in cmp:
            yield [tag, False, *_NOTHING]
        elif _is_tensor(value) and _is_tensor(cmp[key]):
            yield [tag, *_tensor(value, cmp[key], tag, digests)]
        elif isinstance(value, dict) and isinstance(cmp[key], dict) and not _is_tensor(value) and depth < _DEPTH:
            yield from _tree(value, cmp[key], digests, tag, depth + 1)
        elif isinstance(value, dict):
            yield [tag, False, *_NOTHING]
    for key in cmp:
        if key not in bench:
            yield [f"{path}.{key}" if path else key, False, *_NOTHING]


def _weights(
    bench: dict[str, Any], cmp: dict[str, Any], digests: tuple[dict[str, Any], dict[str, Any]]
) -> Iterator[list[Any]]:
    for name in dict.fromkeys((*bench, *cmp)):
        if name not in bench or name not in cmp:
            yield [name, f"only {'bench' if name in bench else 'cmp'} have", *_NOTHING]
        elif _is_tensor(bench[name]) and _is_tensor(cmp[name]):
            yield [name, *_tensor(bench[name], cmp[name], name, digests)]
        else:
            yield [name, False, *_NOTHING]


def _is_tensor(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == set(_STATISTICS)
        and all(isinstance(number, (int, float)) for number in value.values())
    )


def _tensor(
    bench: dict[str, float], cmp: dict[str, float], tag: str, digests: tuple[dict[str, Any], dict[str, Any]]
) -> list[Any]:
    """Equal, and the differences relative to the bench's size; None where that is 0."""
    known, other = (side.get(tag) for side in digests)
    equal = all(bench[name] == cmp[name] for name in _STATISTICS) and known == other
    return [
        equal,
        *(abs(bench[name] - cmp[name]) / abs(bench[name]) if bench[name] != 0 else None for name in _STATISTICS),
    ]

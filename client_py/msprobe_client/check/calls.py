"""The recorded calls that a check runs again. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msprobe_client.model import Rank, Record

if TYPE_CHECKING:
    from msprobe_client.client import Client


@dataclass(frozen=True, slots=True)
class Place:
    run: str
    step: int
    rank: Rank


@dataclass(frozen=True, slots=True)
class Call:
    forward: Record
    backward: Record | None


def calls_of(client: Client, place: Place, name: str | None = None) -> list[Call]:
    """In order of ordinal, with their stacks. name: a shell pattern over names of forward calls."""
    records = client.records(place.run, step=place.step, rank=place.rank, with_stack=True)
    return paired(records, name)


def paired(records: Iterable[Record], name: str | None = None) -> list[Call]:
    by_name = {record.full_name: record for record in records if record.kind == "api"}
    return [
        Call(record, by_name.get(f"{record.full_name.removesuffix('.forward')}.backward"))
        for record in by_name.values()
        if record.direction == "forward" and (name is None or fnmatchcase(record.full_name, name))
    ]

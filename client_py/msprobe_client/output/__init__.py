"""The formats of answers: table, json, csv, csv-safe, xlsx, parquet. A new format is one file {name}_rows.py here and
one line in Format, and for a binary one a line in BINARY. Every command answers through write(), so each format has the
whole answer: rows, and the Ending.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from msprobe_client.visible import visible

Row: TypeAlias = Mapping[str, Any]
# Colour of a row: red, yellow, or none.
Mark: TypeAlias = Literal["bad", "doubtful", ""]
Marker: TypeAlias = Callable[[Row], Mark]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of table, csv, xlsx and parquet: `name` is the row's key, `title` heads it in a table."""

    name: str
    title: str
    show: Callable[[Any], str] = str  # in a table
    right: bool = False
    in_table: bool = True
    width: int = 0  # in a live table, which does not wait for rows
    # Type in parquet; absent: that of the first rows.
    kind: Literal["int", "float", "text", ""] = ""


class Format(str, Enum):
    table = "table"
    json = "json"
    csv = "csv"
    csv_safe = "csv-safe"
    xlsx = "xlsx"
    parquet = "parquet"


@dataclass(frozen=True, slots=True)
class Ending:
    """The rest of an answer, besides its rows."""

    # Sentences: behind a table, "notes" of a json document; on stderr where these go to a file, or another format.
    notes: Sequence[str] = ()
    # Further keys of a json document, beside "rows".
    facts: Mapping[str, Any] = field(default_factory=dict)
    # The facts for people: lines between a table and its notes.
    shown: Sequence[str] = ()


def _nothing_more() -> Ending:
    return Ending()


BINARY = frozenset({Format.xlsx, Format.parquet})
_WITH_ENDING = frozenset({Format.table, Format.json})


def _live(rows: Iterable[Row], stream: IO[Any]) -> Iterator[Row]:
    for row in rows:
        yield row
        stream.flush()


def _unmarked(row: Row) -> Mark:
    del row
    return ""


# Lines on stderr about this answer; "warnings" of a json document.
warnings: list[str] = []


def tell(message: str, program: str) -> None:
    """A line on stderr that is no part of the answer, such as what is waited for."""
    print(visible(f"{program}: {message}"), file=sys.stderr, flush=True)


def warn(message: str, program: str) -> None:
    warnings.append(message)
    tell(message, program)


def write(
    chosen: Format,
    columns: Sequence[Column],
    rows: Iterable[Row],
    to: Path | IO[Any] | None = None,
    mark: Marker = _unmarked,
    live: bool = False,
    ending: Callable[[], Ending] = _nothing_more,
) -> None:
    """Writes rows as they come, to stdout, or to a file, which appears whole. Of table and xlsx, mark colours rows.

    live: each row is shown as it comes. ending: asked for behind the last row.

    json and csv hold one row at a time, table a screenful, parquet some thousands, xlsx those of a sheet in a file.
    """
    asked_once = functools.cache(ending)
    writer = importlib.import_module(f"{__name__}.{chosen.name}_rows").write
    if not isinstance(to, Path):
        stream = to or sys.stdout
        if chosen in BINARY and stream.isatty():
            from msprobe_client.errors import InvalidArgument

            raise InvalidArgument(f"{chosen.value} is not for a terminal; send it to a file: > FILE.{chosen.value}")
        if to is None and stream.isatty():
            from msprobe_client.output.progress import gone_before

            rows = gone_before(rows)
        if live:
            rows = _live(rows, stream)
        columns = [replace(column, width=max(column.width, 1) if live else 0) for column in columns]
        writer(columns, rows, sys.stdout.buffer if chosen in BINARY and to is None else stream, mark, asked_once)
    else:
        from msprobe_client.output.whole_file import whole_file

        with whole_file(to) as scratch:
            if chosen in BINARY:
                with scratch.open("wb") as binary:
                    writer(columns, rows, binary, mark, asked_once)
            else:
                with scratch.open("w", encoding="utf-8", newline="") as text:
                    writer(columns, rows, text, mark, asked_once)
    if chosen not in _WITH_ENDING or isinstance(to, Path):
        for note in asked_once().notes:
            print(visible(note), file=sys.stderr)

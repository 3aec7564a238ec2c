"""How answers are shown: table, json, csv, xlsx, parquet. A new format is one file {name}_rows.py here and one line in
Format, and where it is binary one in BINARY."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

Row: TypeAlias = Mapping[str, Any]
# How a row is marked where there are colours: red, yellow, not at all.
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
    width: int = 0  # in a table that is live, where no rows are waited for
    # What parquet holds; nothing: what the first rows have.
    kind: Literal["int", "float", "text", ""] = ""


class Format(str, Enum):
    table = "table"
    json = "json"
    csv = "csv"
    xlsx = "xlsx"
    parquet = "parquet"


BINARY = frozenset({Format.xlsx, Format.parquet})


def _live(rows: Iterable[Row], stream: IO[Any]) -> Iterator[Row]:
    for row in rows:
        yield row
        stream.flush()


def _unmarked(row: Row) -> Mark:
    del row
    return ""


def write(
    chosen: Format,
    columns: Sequence[Column],
    rows: Iterable[Row],
    to: Path | IO[Any] | None = None,
    mark: Marker = _unmarked,
    live: bool = False,
) -> None:
    """Writes rows as they come, to stdout, or to a file, which appears whole. Of table and xlsx, mark colours rows.

    live: each row is shown as it comes.

    json and csv hold one row at a time, table a screenful, parquet some thousands, xlsx those of a sheet in a file.
    """
    writer = importlib.import_module(f"{__name__}.{chosen.value}_rows").write
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
        writer(columns, rows, sys.stdout.buffer if chosen in BINARY and to is None else stream, mark)
        return
    from msprobe_client.output.whole_file import whole_file

    with whole_file(to) as scratch:
        if chosen in BINARY:
            with scratch.open("wb") as binary:
                writer(columns, rows, binary, mark)
        else:
            with scratch.open("w", encoding="utf-8", newline="") as text:
                writer(columns, rows, text, mark)

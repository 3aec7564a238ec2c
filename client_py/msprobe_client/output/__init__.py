"""How answers are shown: table, json, csv. A new format is one file {name}_rows.py here and one line in Format."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TextIO, TypeAlias

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of table and csv: `name` is the row's key, `title` heads it in a table."""

    name: str
    title: str
    show: Callable[[Any], str] = str  # in a table
    right: bool = False
    in_table: bool = True


class Format(str, Enum):
    table = "table"
    json = "json"
    csv = "csv"


Writer: TypeAlias = Callable[[Sequence[Column], Iterable[Row], TextIO], None]


def write(chosen: Format, columns: Sequence[Column], rows: Iterable[Row], to: TextIO | None = None) -> None:
    """Writes rows as they come; json and csv hold one row at a time, table a screenful."""
    writer: Writer = importlib.import_module(f"{__name__}.{chosen.value}_rows").write
    writer(columns, rows, to or sys.stdout)

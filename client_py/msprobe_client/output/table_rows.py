"""Aligned columns that stream: widths come from the first rows, and a later, longer cell only moves its own line.

Rich's tables need every row before the first line, and a step has tens of thousands.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from msprobe_client.output import Column, Ending, Mark, Marker, Row
from msprobe_client.visible import visible

# Rows whose cells set the widths.
_WINDOW = 1000
_COLOURS = {"bad": 31, "doubtful": 33}
_ALARM = re.compile(r"\b(NaN|Infinity|incomplete|raised|never ended|fault)\b")


def write(
    columns: Sequence[Column], rows: Iterable[Row], to: TextIO, mark: Marker, ending: Callable[[], Ending]
) -> None:
    columns = [column for column in columns if column.in_table]
    if columns:
        _write_rows(columns, rows, to, mark)
    end = ending()
    to.writelines(f"{visible(line)}\n" for line in (*end.shown, *end.notes))


def _write_rows(columns: Sequence[Column], rows: Iterable[Row], to: TextIO, mark: Marker) -> None:
    colored = to.isatty() and "NO_COLOR" not in os.environ
    lines = (([_cell(column, row) for column in columns], mark(row)) for row in rows)
    window = list(itertools.islice(lines, 0 if any(column.width for column in columns) else _WINDOW))
    titles = [column.title for column in columns]
    shown = (titles, *(cells for cells, _ in window))
    widths = [max(column.width, *(len(cells[index]) for cells in shown)) for index, column in enumerate(columns)]
    heading: tuple[list[str], Mark] = (titles, "")
    for cells, marked in itertools.chain([heading], window, lines):
        line = "  ".join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for column, cell, width in zip(columns, cells, widths, strict=True)
        ).rstrip()
        if colored:
            line = f"\x1b[1m{line}\x1b[0m" if cells is titles else _coloured(line, marked)
        to.write(line)
        to.write("\n")


def _coloured(line: str, marked: Mark) -> str:
    return f"\x1b[{_COLOURS[marked]}m{line}\x1b[0m" if marked else _ALARM.sub("\x1b[31m\\1\x1b[0m", line)


def _cell(column: Column, row: Row) -> str:
    value = row[column.name]
    return "" if value is None else visible(column.show(value))

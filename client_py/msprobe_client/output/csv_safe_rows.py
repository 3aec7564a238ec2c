"""CSV for a spreadsheet: no cell is taken for a formula, whoever chose the names in it.

A text that begins with = + - @, wide or not, after spaces or not, has ' before it; control characters stand as \\n or
\\x1b; numbers are as in csv.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from msprobe_client.output import Column, Ending, Marker, Row, csv_rows
from msprobe_client.visible import visible

_BEGINS_A_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # wide ones too, because some spreadsheets treat them alike


def write(
    columns: Sequence[Column], rows: Iterable[Row], to: TextIO, mark: Marker, ending: Callable[[], Ending]
) -> None:
    names = [column.name for column in columns]
    csv_rows.write(columns, ({name: _quoted(row[name]) for name in names} for row in rows), to, mark, ending)


def _quoted(value: Any) -> Any:
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    text = visible(csv_rows.cell(value))
    return f"'{text}" if text.lstrip().startswith(_BEGINS_A_FORMULA) else text

"""CSV with a header. Numbers unrounded; lists separated by spaces; nothing where there is no value."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from msprobe_client.output import Column, Ending, Marker, Row
from msprobe_client.output.json_rows import not_finite, plain


def write(
    columns: Sequence[Column], rows: Iterable[Row], to: TextIO, mark: Marker, ending: Callable[[], Ending]
) -> None:
    del mark, ending
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    names = [column.name for column in columns]
    # Most cells of a wide table are text already, or empty, which csv writes as nothing.
    writer.writerows(
        [value if value is None or value.__class__ is str else cell(value) for value in map(row.__getitem__, names)]
        for row in rows
    )


def cell(value: Any) -> str:
    """The value as text of one cell."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else not_finite(value)
    if isinstance(value, list | tuple):
        return " ".join(cell(item) for item in value)
    return str(plain(value))

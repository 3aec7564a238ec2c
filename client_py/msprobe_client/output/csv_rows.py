"""CSV with a header. Numbers unrounded; lists separated by spaces; nothing where there is no value."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from msprobe_client.output import Column, Row
from msprobe_client.output.json_rows import not_finite, plain


def write(columns: Sequence[Column], rows: Iterable[Row], to: TextIO) -> None:
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([_cell(row[column.name]) for column in columns] for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else not_finite(value)
    if isinstance(value, list | tuple):
        return " ".join(_cell(item) for item in value)
    return str(plain(value))

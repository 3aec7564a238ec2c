"""One JSON object to a line, strict: what JSON lacks are the strings "NaN", "Infinity" and "-Infinity"."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from msprobe_client.model import Rank
from msprobe_client.output import Column, Marker, Row


def write(columns: Sequence[Column], rows: Iterable[Row], to: TextIO, mark: Marker) -> None:
    """Every key of a row, columns or not."""
    del columns, mark
    for row in rows:
        to.write(json.dumps(plain(row), allow_nan=False, ensure_ascii=False))
        to.write("\n")


def plain(value: Any) -> Any:
    """The value in terms of JSON."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else not_finite(value)
    if isinstance(value, Rank):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value)


def not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"

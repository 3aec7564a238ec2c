"""One strict JSON document, {"rows": [...], ...}, with a row to a line.

Numbers that JSON lacks are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from msprobe_client.model import Rank
from msprobe_client.output import Column, Ending, Marker, Row, warnings


def write(
    columns: Sequence[Column], rows: Iterable[Row], to: TextIO, mark: Marker, ending: Callable[[], Ending]
) -> None:
    """Every key of a row, columns or not. If the rows break off, the document is still whole, with the reason under
    "error".
    """
    del columns, mark
    begin = '{"rows": [\n'
    written: deque[int] = deque(maxlen=1)
    try:
        for row in rows:
            line = f"{',' if written else begin}{_text(row)}\n"
            # One call, so that Ctrl-C does not come between a row and the note that it is written.
            written.extend(map(to.write, [line]))
        end = ending()
    except BaseException as error:
        if written:
            to.write("]" + _more({"error": str(error) or "interrupted"}))
        raise
    to.write(("" if written else begin) + "]" + _more({**end.facts, "notes": end.notes, "warnings": warnings}))


def _more(keys: Row) -> str:
    return "".join(f", {json.dumps(key)}: {_text(value)}" for key, value in keys.items()) + "}\n"


def _text(value: Any) -> str:
    return json.dumps(plain(value), allow_nan=False, ensure_ascii=False)


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

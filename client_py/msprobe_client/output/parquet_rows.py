"""Parquet: the columns of csv, with their own type or that of the first rows. Lists and nested values are json text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO

from msprobe_client.output import Column, Ending, Marker, Row
from msprobe_client.output.extras import extra
from msprobe_client.output.json_rows import plain

# Rows of a group; they are in memory at a time.
GROUP = 8192


def write(
    columns: Sequence[Column], rows: Iterable[Row], to: BinaryIO, mark: Marker, ending: Callable[[], Ending]
) -> None:
    del mark, ending
    pa = extra("pyarrow", "parquet")
    parquet = extra("pyarrow.parquet", "parquet")
    remaining = iter(rows)
    group = list(itertools.islice(remaining, GROUP))
    schema = pa.schema([(column.name, _type(pa, column, group)) for column in columns])
    with parquet.ParquetWriter(to, schema, compression="zstd") as writer:
        while True:
            arrays = [
                pa.array([_value(row[field.name], field.type, pa) for row in group], field.type) for field in schema
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            group = list(itertools.islice(remaining, GROUP))
            if not group:
                return


def _type(pa: Any, column: Column, rows: list[Row]) -> Any:
    if column.kind:
        return {"int": pa.int64, "float": pa.float64, "text": pa.string}[column.kind]()
    kinds = {type(row[column.name]) for row in rows} - {type(None)}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    return pa.string()


def _value(value: Any, kind: Any, pa: Any) -> Any:
    if value is None:
        return None
    if kind == pa.string():
        return value if isinstance(value, str) else _text(value)
    if kind == pa.float64():
        return float(value) if isinstance(value, int | float) else None  # an argument may be a text
    return value


def _text(value: Any) -> str:
    found = plain(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

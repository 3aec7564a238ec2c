"""What pk of the parse shell prints: statistics of an operation, out of a dump.json or an old .pkl of JSON lines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msprobe_client.errors import DataError, InvalidArgument, NotFound
from msprobe_client.given_file import json_of, opened

_MAX_LINE = 64 << 20
_OLD_FIELDS = 6  # name, ..., dtype, shape, [max, min, mean]


def statistics_of(path: Path, name: str) -> Iterator[str]:
    """Lines for people. A .pkl of mindstudio-probe is no pickle, but lines of JSON, and read as such."""
    if path.suffix == ".pkl":
        lines = list(_of_lines(path, name))
    elif path.suffix == ".json":
        lines = list(_of_dump(path, name))
    else:
        raise InvalidArgument(f"{path} is no dump; a dump.json or a .pkl of JSON lines is right")
    if not lines:
        raise NotFound(f"{path} has no operation that begins with {name}")
    yield from lines


def _of_dump(path: Path, name: str) -> Iterator[str]:
    from msprobe_client.client import Client
    from msprobe_client.scratch import scratch_directory

    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        literal = name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
        found = list(client.find(path, name=f"{literal}*"))
    title = ["", "Statistic Info:"]
    for tensor in found:
        yield from title
        title = []
        numbers = f"[max: {tensor.max}][min: {tensor.min}][mean: {tensor.mean}]"
        yield f"  [{tensor.name}][dtype: {tensor.dtype}][shape: {tensor.shape}]{numbers}"
    yield from _stack(path.with_name("stack.json"), name)


def _stack(path: Path, name: str) -> Iterator[str]:
    if not path.exists():
        return
    entries = json_of(path)
    if not isinstance(entries, dict):
        raise DataError(f"{path} is a {type(entries).__name__}; an object of number: [[names], [frames]] is right")
    for key, entry in entries.items():
        grouped = isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, list) for part in entry)
        names, frames = entry if grouped else ([key], entry)
        if not isinstance(frames, list) or not all(isinstance(text, str) for text in (*names, *frames)):
            raise DataError(f"{path}, {key} is {json.dumps(entry)[:60]}; [[names], [frames]] of texts is right")
        for each in names:
            if each.startswith(name):
                yield ""
                yield f"Trace back({each}):"
                yield from (f"  {line}" for frame in frames for line in frame.splitlines())


def _of_lines(path: Path, name: str) -> Iterator[str]:
    title = ["", "Statistic Info:"]
    with io.TextIOWrapper(opened(path), encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), ""), 1):
            if not line.strip():
                continue
            entry = _parsed(path, number, line)
            if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
                break
            if not entry[0].startswith(name):
                continue
            if "stack_info" in entry[0] and len(entry) == 2:
                yield from _old_stack(entry)
            elif len(entry) >= _OLD_FIELDS and isinstance(entry[5], list) and len(entry[5]) >= 3:
                yield from title
                title = []
                high, low, mean = entry[5][:3]
                yield (f"  [{entry[0]}][dtype: {entry[3]}][shape: {entry[4]}][max: {high}][min: {low}][mean: {mean}]")


def _old_stack(entry: list[Any]) -> Iterator[str]:
    yield ""
    yield f"Trace back({entry[0]}):"
    for frame in reversed(entry[1] if isinstance(entry[1], list) else []):
        if isinstance(frame, list) and len(frame) >= 4:
            yield f'  File "{frame[0]}", line {frame[1]}, in {frame[2]}'
            yield f"    {frame[3]}"


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f"{path}, line {number} is no JSON: {line[:60]!r}") from None

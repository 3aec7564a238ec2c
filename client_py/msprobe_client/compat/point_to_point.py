"""Sends and receives that arguments of torch.distributed.batch_isend_irecv describe, read from dump directories.

The rest of a comparison is the server's, and so is reading dump.json. This is read here because no answer of the server
has the messages of a rank: its table names tensors alone, and one old command (compare -da) shows them. Only a dump that
has such an argument is parsed.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_CLASS = "torch.distributed.P2POp"
_SECTIONS = {"input_args": "input", "input_kwargs": "input", "input": "input", "output": "output"}


class Message(NamedTuple):
    op: str  # "isend"
    peer: int


def messages_of(dump: Path) -> dict[str, Message]:
    """By full name of the row of the tensor. A dump without any is not parsed: it may be long."""
    with dump.open("rb") as file:
        if dump.stat().st_size == 0:
            return {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_CLASS.encode()) < 0:
                return {}
            data = json.loads(content[:]).get("data") or {}
    found: dict[str, Message] = {}
    for entry, value in data.items():
        for section, way in _SECTIONS.items():
            if isinstance(value, dict) and section in value:
                found.update(_walk(f"{entry}.{way}", value[section]))
    return found


def _walk(path: str, value: Any) -> Iterator[tuple[str, Message]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _walk(f"{path}.{index}", each)
    elif isinstance(value, dict) and value.get("class_type") == _CLASS:
        tensor = value.get("tensor")
        name = tensor.get("data_name", "") if isinstance(tensor, dict) else ""
        yield name.rpartition(".")[0] or path, Message(str(value.get("op")), value.get("peer", -1))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _walk(f"{path}.{key}", each)


def dump_of(directory: Path, step: int, rank: Any) -> Path | None:
    """The dump.json of a step and rank of a directory that holds a step, several steps, or just it."""
    name = f"{rank.kind}{rank.number}"
    for place in (directory / name, directory / f"step{step}" / name, directory):
        if (place / "dump.json").is_file():
            return place / "dump.json"
    return None

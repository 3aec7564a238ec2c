"""Encodings of the rare values that a call can carry; everything common is encoded in C++."""

from __future__ import annotations

import json
import zlib
from typing import Any

from mindspore.mint import distributed


def describe(value: Any) -> dict[str, Any] | None:
    """A dict of JSON and tensors; None: no encoding."""
    if not isinstance(value, distributed.P2POp):
        return None
    op = value.op if isinstance(value.op, str) else getattr(value.op, "__name__", str(value.op))
    return {
        "class_type": json.dumps("mindspore.mint.distributed.P2POp"),
        "tensor": value.tensor,
        "op": json.dumps(op),
        "peer": json.dumps(value.peer),
        "tag": json.dumps(value.tag),
        "group_id": json.dumps(_group_id(value.group) if value.group else None),
    }


def _group_id(group: Any) -> str:
    return f"{zlib.crc32(str(distributed.get_process_group_ranks(group)).encode()):08x}"

"""ckpt_similarity.json: tensors of two checkpoints, as mindstudio-probe writes it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from msprobe_client.checkpoint_diff import CheckpointDifference
from msprobe_client.errors import InvalidArgument
from msprobe_client.output.whole_file import whole_file
from msprobe_client.scratch import scratch_directory

# Tensors of one side alone that a note names.
_NAMED = 5


def compare_checkpoints(one: Path, other: Path, target: Path) -> tuple[int, list[str]]:
    """The number of tensors that both have, and what to say of others. docs/checkpoints.md: layouts and names."""
    if target.exists():
        raise InvalidArgument(f"{target} exists; name another file with -o")
    for side in (one, other):
        if not side.exists():
            raise InvalidArgument(f"{side} does not exist; name two packs (.zip), or two checkpoints")
    from msprobe_client.client import Client

    notes: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    alone: dict[str, list[str]] = {"only-target": [], "only-golden": []}
    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        for item in client.checkpoints.diff(one, other, note=notes.append):
            if item.kind in alone:
                alone[item.kind].append(item.name)
            else:
                found[item.name] = _numbers(item)
    for kind, path in (("only-target", one), ("only-golden", other)):
        if alone[kind]:
            more = ", ..." if len(alone[kind]) > _NAMED else ""
            notes.append(f"{len(alone[kind])} tensors are in {path} alone: {', '.join(alone[kind][:_NAMED])}{more}")
    with whole_file(target) as scratch_file:
        scratch_file.write_text(json.dumps(found, indent=4), encoding="utf-8")
    return len(found), notes


def _numbers(item: CheckpointDifference) -> dict[str, Any]:
    assert item.target is not None and item.golden is not None
    shapes = [list(item.target.shape), list(item.golden.shape)]
    if shapes[0] != shapes[1]:
        return {"l2": None, "cos": None, "numel": [math.prod(shape) for shape in shapes], "shape": shapes}
    return {"l2": item.l2, "cos": _finite(item.cosine), "numel": item.elements, "shape": shapes[0]}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""Compares two dumps of MindSpore entry for entry: one of mindstudio-probe's, one of ours."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Of Mean and Norm, which mindstudio-probe computes in the tensor's own type, and those of wide types in float32.
RELATIVE = 1e-5
RELATIVE_OF_HALVES = 2e-3


def rank_directory(dump: Path, step: int) -> Path:
    (found,) = (path for path in (dump / f"step{step}").iterdir() if path.is_dir())
    return found


def read(directory: Path, name: str) -> Any:
    return json.loads((directory / name).read_text(encoding="utf-8"))


def differences(theirs: Path, ours: Path, with_files: bool = False) -> Iterator[str]:
    """Lines that say what is not equal in dump.json, construct.json and the names of stack.json."""
    old, new = read(theirs, "dump.json"), read(ours, "dump.json")
    for key in ("task", "level", "framework"):
        if old[key] != new[key]:
            yield f"{key}: {old[key]!r}, ours {new[key]!r}"
    if (old["dump_data_dir"] is None) != (new["dump_data_dir"] is None):
        yield f"dump_data_dir: {old['dump_data_dir']!r}, ours {new['dump_data_dir']!r}"
    yield from _of_keys("dump.json", old["data"], new["data"])
    for name in old["data"].keys() & new["data"].keys():
        yield from _of_values(name, old["data"][name], new["data"][name])
    yield from _of_construct(read(theirs, "construct.json"), read(ours, "construct.json"))
    yield from _of_keys("stack.json", _stacked(theirs), _stacked(ours))
    if with_files:
        yield from _of_files(theirs / "dump_tensor_data", ours / "dump_tensor_data")


def _stacked(directory: Path) -> dict[str, None]:
    return {name: None for names, _ in read(directory, "stack.json").values() for name in names}


def _of_keys(where: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in old.keys() - new.keys():
        yield f"{where}: {name} is missing"
    for name in new.keys() - old.keys():
        yield f"{where}: {name} is ours alone"


def _of_construct(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    yield from _of_keys("construct.json", old, new)
    for name in old.keys() & new.keys():
        if old[name] != new[name]:
            yield f"construct.json: {name} is in {old[name]}, ours in {new[name]}"


def _of_values(where: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        is_tensor = "shape" in old
        bound = RELATIVE_OF_HALVES if old.get("dtype") in ("Float16", "BFloat16") else RELATIVE
        yield from _of_keys(where, old, new)
        for key in old.keys() & new.keys():
            if not (is_tensor and key in ("Mean", "Norm")):
                yield from _of_values(f"{where}.{key}", old[key], new[key])
            elif not _close(old[key], new[key], bound):
                yield f"{where}.{key}: {old[key]!r}, ours {new[key]!r}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _of_values(f"{where}.{index}", left, right)
    elif type(old) is not type(new) or not _same(old, new):
        yield f"{where}: {old!r}, ours {new!r}"


def _same(old: Any, new: Any) -> bool:
    return old == new or (isinstance(old, float) and math.isnan(old) and math.isnan(new))


def _close(old: Any, new: Any, bound: float) -> bool:
    if old is None or new is None or isinstance(old, bool):
        return old is new
    return _same(old, new) or math.isclose(old, new, rel_tol=bound, abs_tol=1e-7)


def _of_files(theirs: Path, ours: Path) -> Iterator[str]:
    import numpy

    old, new = ({path.name: path for path in folder.iterdir()} for folder in (theirs, ours))
    yield from _of_keys("dump_tensor_data", old, new)
    for name in old.keys() & new.keys():
        left, right = (numpy.load(found[name]) for found in (old, new))
        if left.dtype != right.dtype or left.shape != right.shape or left.tobytes() != right.tobytes():
            yield f"{name}: {left.dtype}{left.shape}, ours {right.dtype}{right.shape}, or other numbers"

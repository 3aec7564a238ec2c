"""Finds the files of a dump: ours, or mindstudio-probe's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msprobe_client.errors import InvalidArgument

_STEP = re.compile(r"step[0-9]+")
_RANK = re.compile(r"(rank|proc)[0-9]+")
_FILES = ("dump.json", "debug.json", "stack.json", "construct.json", "dump_error_info.log", "INCOMPLETE")
ENTRIES = ("dump.json", "debug.json")
_TENSORS = "dump_tensor_data"
_TENSOR_SUFFIXES = (".pt", ".npy")
_KERNELS_OF_RANK = re.compile(r"rank_[0-9]+")  # which MindSpore dumped itself
_KERNEL_SUFFIXES = (".npy", ".csv")
# Of a tensor that an operator in a graph of MindSpore wrote.
_OF_CELL = re.compile(r"Cell\..+\.(forward|backward)\.(input|output)\.[0-9]+_\w+_[0-9]+\.npy")


@dataclass(frozen=True, slots=True)
class DumpFile:
    source: Path
    path: str  # step0/rank0/dump.json
    size: int


def find(root: Path, *, tensors: bool = True) -> list[DumpFile]:
    """Files in order of step, then rank, json before tensors.

    root is a dump_path (with step{N} in it), one step{N}, or one rank{R} or proc{PID}
    (of step 0 where its parent is no step); or the dump_path of what graphs of MindSpore dumped, with rank_{R} in it,
    or with step{N} and no json.
    """
    if not root.is_dir():
        problem = "is not a directory" if root.exists() else "does not exist"
        raise InvalidArgument(f"{root} {problem}; name a dump_path with step{{N}}/rank{{R}} in it")
    found = [file for directory, prefix in rank_directories(root) for file in _files(directory, prefix, tensors)]
    found = found or [*_kernel_files(root), *_cell_files(root)]
    if not found:
        raise InvalidArgument(
            f"{root} holds no dump: no step{{N}}/rank{{R}} or step{{N}}/proc{{PID}} with a dump.json or debug.json"
        )
    return found


def rank_directories(root: Path) -> Iterator[tuple[Path, str]]:
    """Each with its step and rank: step0/rank0."""
    resolved = root.resolve()
    if _RANK.fullmatch(resolved.name) and any((root / name).is_file() for name in ENTRIES):
        step = resolved.parent.name
        yield root, f"{step if _STEP.fullmatch(step) else 'step0'}/{resolved.name}"
        return
    if _STEP.fullmatch(resolved.name):
        yield from ((rank, f"{resolved.name}/{rank.name}") for rank in _numbered(root, _RANK))
        return
    for step_directory in _numbered(root, _STEP):
        for rank in _numbered(step_directory, _RANK):
            yield rank, f"{step_directory.name}/{rank.name}"


def _numbered(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    matching = [child for child in directory.iterdir() if pattern.fullmatch(child.name) and child.is_dir()]
    return sorted(matching, key=lambda child: (re.sub("[0-9]", "", child.name), int(re.sub("[^0-9]", "", child.name))))


def _kernel_files(root: Path) -> Iterator[DumpFile]:
    """Tensors among them, as their names are the records'."""
    for rank in _numbered(root, _KERNELS_OF_RANK):
        for file in sorted(rank.rglob("*")):
            if file.suffix in _KERNEL_SUFFIXES and file.is_file():
                yield DumpFile(file, file.relative_to(root).as_posix(), file.stat().st_size)


def _cell_files(root: Path) -> Iterator[DumpFile]:
    """As _kernel_files, of the cells of graphs."""
    for directory, prefix in rank_directories(root):
        for file in sorted((directory / _TENSORS).glob("Cell.*.npy")):
            if _OF_CELL.fullmatch(file.name):
                yield DumpFile(file, f"{prefix}/{_TENSORS}/{file.name}", file.stat().st_size)


def _files(directory: Path, prefix: str, tensors: bool) -> Iterator[DumpFile]:
    if not any((directory / name).is_file() for name in ENTRIES):
        return
    for name in _FILES:
        file = directory / name
        if file.is_file():
            yield DumpFile(file, f"{prefix}/{name}", file.stat().st_size)
    contents = directory / _TENSORS
    if tensors and contents.is_dir():
        for file in sorted(contents.iterdir()):
            if file.suffix in _TENSOR_SUFFIXES and file.is_file():
                yield DumpFile(file, f"{prefix}/{_TENSORS}/{file.name}", file.stat().st_size)

"""Files of kernel dumps and of ATB as .npy or .pt, under mindstudio-probe's names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msprobe_client.errors import FailedPrecondition, InvalidArgument
from msprobe_client.tensor_files import TensorFiles, TensorPlace

_MAX_DEPTH = 5


def converted(
    files: TensorFiles,
    source: Path,
    output: Path,
    suffix: str,
    layout: str = "",
    said: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Writes each tensor of a file: {stem}.npy for ATB, {name}.{input|output}.{i}.npy for a kernel dump; in another
    layout with its shape, {name}.output.0.1x16x8x8.npy. said: hears which tensor has no such layout and keeps its own.
    """
    listed = files.listed(source)
    if listed.kind not in ("atb", "adump"):
        raise InvalidArgument(f"{source} is a file of form {listed.kind}; an ATB .bin or a kernel dump is right")
    written = []
    for tensor in listed.tensors:
        stem = source.stem if listed.kind == "atb" else f"{source.name}.{tensor.name}"
        plain = output / f"{stem}.{suffix}"
        try:
            path = files.convert(TensorPlace(source, tensor.name, layout=layout), plain)
        except (InvalidArgument, FailedPrecondition) as error:
            if not layout:
                raise
            said(f"{tensor.name} keeps its layout: {error}")
            path = files.convert(TensorPlace(source, tensor.name), plain)
        else:
            if layout:
                shape = "x".join(map(str, files.listed(path).tensors[0].shape))
                path = path.rename(output / f"{stem}.{shape}.{suffix}")
        written.append(path)
    return written


def files_below(path: Path, depth: int = _MAX_DEPTH) -> Iterator[Path]:
    """The file, or those below the directory, in order; links to directories are not followed."""
    if not path.exists():
        raise InvalidArgument(f"{path} does not exist")
    if path.is_file():
        yield path
        return
    for root, directories, names in os.walk(path):
        directories.sort()
        if len(Path(root).relative_to(path).parts) >= depth - 1:
            directories.clear()
        yield from (Path(root) / name for name in sorted(names))

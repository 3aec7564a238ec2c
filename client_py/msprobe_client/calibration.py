"""Tensors that are multiplied by a matrix before they are compared: mindstudio-probe's --config.

The file has the sections right_matmul and left_matmul, each with target_tensor_map and golden_tensor_map, and
left_right_matmul with one map for each side and direction. A map is {matrix file: [names of tensor files of the dump]}.
They are applied in that order. The result is a directory of links to the dump's files and the products; on another file
system, of copies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.name_mapping import mapping_of

Side = Literal["target", "golden"]
_TENSORS = "dump_tensor_data"
# Section, key, side, whether the matrix stands on the left; in order of application.
_MAPS: tuple[tuple[str, str, Side, bool], ...] = (
    ("right_matmul", "target_tensor_map", "target", False),
    ("right_matmul", "golden_tensor_map", "golden", False),
    ("left_matmul", "target_tensor_map", "target", True),
    ("left_matmul", "golden_tensor_map", "golden", True),
    ("left_right_matmul", "left_target_tensor_map", "target", True),
    ("left_right_matmul", "right_target_tensor_map", "target", False),
    ("left_right_matmul", "left_golden_tensor_map", "golden", True),
    ("left_right_matmul", "right_golden_tensor_map", "golden", False),
)


@dataclass(frozen=True, slots=True)
class Product:
    """One multiplication of the tensors of one file name."""

    matrix: Path
    left: bool


class Calibration:
    """The multiplications of a file of --config. InvalidArgument names a wrong entry."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._products: dict[Side, dict[str, list[Product]]] = {"target": {}, "golden": {}}
        given = mapping_of(path)
        known = {section for section, *_ in _MAPS}
        for section, value in given.items():
            if section not in known:
                raise InvalidArgument(f"{path}: {section} is not known; sections are {', '.join(sorted(known))}")
            keys = [key for of, key, *_ in _MAPS if of == section]
            unknown = set(value or {}) - set(keys) if isinstance(value or {}, dict) else {str(value)}
            if unknown:
                raise InvalidArgument(f"{path}: {section} has {min(unknown)}; it can have {', '.join(keys)}")
        for section, key, side, left in _MAPS:
            for matrix, names in ((given.get(section) or {}).get(key) or {}).items():
                if not isinstance(names, list):
                    raise InvalidArgument(f"{path}: {section}.{key}: {matrix} has {names!r}, not a list of file names")
                if not Path(matrix).is_file():
                    raise InvalidArgument(f"{path}: {section}.{key}: {matrix} does not exist")
                for name in names:
                    self._products[side].setdefault(str(name), []).append(Product(Path(matrix), left))

    def applied(self, side: Side, dump: Path, scratch: Path) -> Path:
        """The dump, or one beside it in scratch in which the tensors are multiplied."""
        products = self._products[side]
        if not products:
            return dump
        directory = dump if dump.is_dir() else dump.parent
        # The names of the directories above are its step and rank.
        made = scratch / side / directory.parent.name / directory.name
        missing = set(products) - set(_mirror(directory, made, products))
        if missing:
            raise InvalidArgument(f"{dump}: there is no tensor {min(missing)} in it, which --config names")
        return made if dump.is_dir() else made / dump.name


def _mirror(directory: Path, made: Path, products: dict[str, list[Product]]) -> Iterator[str]:
    """Links to all files, but for the products, whose names are given."""
    for parent, _, files in os.walk(directory):
        into = made / Path(parent).relative_to(directory)
        into.mkdir(parents=True)
        for name in files:
            source = Path(parent) / name
            if Path(parent).name == _TENSORS and name in products:
                _save(into / name, _multiplied(source, products[name]))
                yield name
            else:
                _link(source, into / name)


def _link(source: Path, target: Path) -> None:
    """Hard links, because the server follows no symbolic ones; a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _multiplied(source: Path, products: Iterable[Product]) -> Any:
    import numpy

    value = _load(source)
    for product in products:
        matrix = _load(product.matrix)
        try:
            value = numpy.matmul(matrix, value) if product.left else numpy.matmul(value, matrix)
        except ValueError:
            raise InvalidArgument(
                f"{product.matrix} of shape {list(matrix.shape)} cannot be multiplied with {source.name} of shape "
                f"{list(value.shape)} {'from the left' if product.left else 'from the right'}"
            ) from None
    return value


def _load(path: Path) -> Any:
    import numpy

    try:
        if path.suffix == ".npy":
            return numpy.load(path, allow_pickle=False)
        torch = _torch(path)
        value = torch.load(path, map_location="cpu", weights_only=True).detach()
    except (OSError, ValueError, RuntimeError, EOFError, AttributeError) as error:
        raise DataError(f"{path} is not a tensor that can be read: {error}") from None
    small = value.dtype is torch.bfloat16 or str(value.dtype).startswith("torch.float8")
    return (value.float() if small else value).numpy()


def _save(path: Path, value: Any) -> None:
    import numpy

    if path.suffix == ".npy":
        numpy.save(path, value)
    else:
        torch = _torch(path)
        torch.save(torch.from_numpy(numpy.ascontiguousarray(value)), path)


def _torch(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise InvalidArgument(f"--config with {path.name}: reading .pt files needs torch, which is not here") from None
    return torch

"""Packs: zip files of texts, written by several processes at once, read with bounds."""

from __future__ import annotations

import fcntl
import json
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msprobe_client import given_file
from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.output.whole_file import whole_file

ENVIRONMENT = "env"
PACKAGES = "pip"
STATIC = "hyperparameters/hyperparameters_static.json"
DYNAMIC = "hyperparameters/hyperparameters_dynamic.json"
DATASET = "dataset"
WEIGHTS = "weights"
RANDOM = "random"
# Of the tensors in dataset/ and weights/. Apart from them: mindstudio-probe reads whatever lies there as its own.
CHECKSUMS = "checksums"

# Of all members together when read; mindstudio-probe refuses the same.
_MOST_BYTES = 10 << 30
_MOST_MEMBERS = 1_000_000
# A member beyond that size unfolds to at most so many times its size: texts of numbers stay far below.
_FREE_BYTES, _MOST_TIMES = 16 << 20, 100


def suffix_checked(path: str) -> Path:
    if not path.endswith(".zip"):
        raise InvalidArgument(f"{path} is no name of a pack; it has to end with .zip")
    return Path(path)


def write(path: Path, members: Mapping[str, str]) -> None:
    """A new pack in the place of what was there."""
    with whole_file(path) as scratch, zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name, text)


def begin(path: Path, before: float) -> None:
    """Empties a pack that was last written before this Unix time: it is of an earlier run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.stat().st_mtime < before:
            file.truncate(0)


def add(path: Path, name: str, text: str) -> None:
    """Adds a member; of two with one name the later counts. Any process: a lock on the file makes them take turns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Duplicate name"
            archive.writestr(name, text)


class Pack:
    """A pack to read."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self._names = frozenset(archive.namelist())

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def under(self, folder: str) -> list[str]:
        """The members of a folder, sorted."""
        return sorted(name for name in self._names if name.startswith(f"{folder}/") and not name.endswith("/"))

    def text(self, name: str) -> str:
        try:
            return self._archive.read(name).decode()
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            UnicodeDecodeError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise DataError(f"{self.path}: the member {name} cannot be read: {error}") from None

    def document(self, name: str) -> dict[str, Any]:
        """A member that is a JSON object. Bare NaN and Infinity are taken, which mindstudio-probe writes."""
        try:
            found = json.loads(self.text(name))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.path}: the member {name} is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise DataError(f"{self.path}: the member {name} is no JSON object")
        return found


@contextmanager
def opened(path: Path) -> Iterator[Pack]:
    try:
        file = given_file.opened(path)
    except FileNotFoundError:
        raise InvalidArgument(f"{path} does not exist; name a pack that config_check -d wrote") from None
    with file:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise DataError(f"{path} is not a zip file: {error}") from None
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS or sum(member.file_size for member in members) > _MOST_BYTES:
            raise DataError(
                f"{path} is no pack of config_check: it would unfold to more than 10 GiB, or a million members"
            )
        for member in members:
            if member.file_size > max(_FREE_BYTES, _MOST_TIMES * member.compress_size):
                raise DataError(
                    f"{path} is no pack of config_check: {member.filename} would unfold from {member.compress_size} to "
                    f"{member.file_size} bytes, more than {_MOST_TIMES} times as many"
                )
        yield Pack(path, archive)

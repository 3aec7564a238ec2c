"""Writes an export so that each step{N}/rank{R} directory, and each file outside of one, appears whole, by one rename.

Files are written to a temporary directory inside the output directory (the same file system). A directory is renamed
into place when the stream moves on to the next one; an unfinished directory disappears when the context is left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO

from msprobe_client.errors import DataError, FailedPrecondition, InvalidArgument

# Parts of a path that make its directory: step{N}/rank{R}.
_DIRECTORY_PARTS = 2


def checked(path: str) -> PurePosixPath:
    """A path sent by a server: relative, with no way out of the directory it is put into."""
    parts = path.split("/")
    if not path or "\0" in path or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise DataError(
            f"the server sent the file path {path!r}, which is not a plain relative path; nothing of it kept"
        )
    return PurePosixPath(*parts)


class ExportWriter:
    """Takes chunks of files in the server's order. Not thread safe."""

    def __init__(self, output: Path, *, force: bool = False) -> None:
        self._output = output
        self._force = force
        self._scratch: Path | None = None
        self._file: BinaryIO | None = None
        self._path: PurePosixPath | None = None
        self._open_directory: PurePosixPath | None = None
        self._placed: list[Path] = []
        self.files = 0
        self.bytes = 0

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(self._placed)

    def __enter__(self) -> ExportWriter:
        try:
            self._output.mkdir(parents=True, exist_ok=True)
            self._scratch = Path(tempfile.mkdtemp(prefix=".msprobe-export-", dir=self._output))
        except OSError as error:
            raise InvalidArgument(f"output directory {self._output} cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def refuse_existing(self, directories: list[str]) -> None:
        """Raises before anything is sent if one of these directories exists and force was not given."""
        taken = [name for name in directories if (self._output / name).exists()]
        if taken and not self._force:
            more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
            raise FailedPrecondition(
                f"{self._output / taken[0]}{more} exists already; choose another --output, or --force to replace it"
            )

    def write(self, path: str, content: bytes, last: bool) -> None:
        if path and (self._path is None or str(self._path) != path):
            if self._file is not None:
                raise DataError(f"the server began {path} before the end of {self._path}")
            self._begin(checked(path))
        if self._file is None:
            raise DataError("the server sent a file's content without its path")
        self._file.write(content)
        self.bytes += len(content)
        if last:
            self._file.close()
            self._file = None
            self._path = None
            self.files += 1

    def finish(self) -> None:
        """Puts the last directory into place. Without this call it disappears."""
        if self._file is not None:
            raise DataError(f"the server's answer ended in the middle of {self._path}")
        self._place()

    def _begin(self, path: PurePosixPath) -> None:
        assert self._scratch is not None
        deep = len(path.parts) > _DIRECTORY_PARTS
        directory = PurePosixPath(*path.parts[:_DIRECTORY_PARTS]) if deep else path
        if directory != self._open_directory:
            self._place()
            self._open_directory = directory
        target = self._scratch / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = target.open("wb")  # a path that comes twice: the later content stands
        except OSError as error:
            raise DataError(f"the server sent {path}, which cannot be written: {error.strerror}") from None
        self._path = path

    def _place(self) -> None:
        if self._open_directory is None:
            return
        assert self._scratch is not None
        source = self._scratch / self._open_directory
        target = self._output / self._open_directory
        self._open_directory = None
        if target in self._placed:
            raise DataError(f"the server sent {target.name} in two parts")
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            self.refuse_existing([str(target.relative_to(self._output))])
            # A directory cannot be renamed over one that is not empty.
            target.rename(Path(tempfile.mkdtemp(prefix="replaced-", dir=self._scratch)) / target.name)
        for left in ("-wal", "-shm"):  # of a database of this name that was open
            target.with_name(target.name + left).unlink(missing_ok=True)
        source.rename(target)
        self._placed.append(target)

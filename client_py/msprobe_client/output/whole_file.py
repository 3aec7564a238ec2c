"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msprobe_client.errors import DataError


def unwritable(error: OSError, target: str | os.PathLike[str]) -> DataError:
    """Why target cannot be written. It names the path that a person knows: never a scratch file, which is gone."""
    path = Path(os.fsdecode(error.filename2 or error.filename or target))
    hidden = next((each for each in (path, *path.parents) if each.name.startswith(".msprobe-")), None)
    where = path if hidden is None else Path(target) if hidden.parent == Path(target).parent else hidden.parent
    reason = error.strerror or str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        file = next((each for each in (where, *where.parents) if each.exists()), where)
        reason = f"{file} is a file, and a directory is needed there"
    elif isinstance(error, PermissionError):
        reason += "; name a directory in which you may write"
    return DataError(f"{where} cannot be written: {reason}")


@contextmanager
def directory_for(output: Path, mode: int = 0o777) -> Iterator[None]:
    """Makes the directory output and those above it; takes away those that it made where the context fails."""
    missing = [path for path in (output, *output.parents) if not path.exists()]
    output.mkdir(mode=mode, parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # someone put a file there meanwhile
            for path in missing:
                path.rmdir()
        raise


def closed_to_writers(path: str, flags: int) -> int:
    """For open(): whatever the umask, others do not write the new file."""
    return os.open(path, flags, 0o644)


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path beside target to write to; it gets target's name when the context is left without an exception."""
    scratch = target.parent / f".msprobe-{secrets.token_hex(8)}"
    try:
        with directory_for(target.parent):
            try:
                yield scratch
                scratch.replace(target)
            finally:
                scratch.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(error, target) from None

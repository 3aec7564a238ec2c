"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msprobe_client.errors import DataError


def blamed(error: OSError, target: str | os.PathLike[str]) -> str:
    """The path that a person knows, of a failure to write target: never that of a scratch file, which is gone."""
    path = Path(os.fsdecode(error.filename2 or error.filename or target))
    hidden = next((each for each in (path, *path.parents) if each.name.startswith(".msprobe-")), None)
    return str(path if hidden is None else hidden.parent)


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path beside target to write to; it gets target's name when the context is left without an exception."""
    scratch = target.parent / f".msprobe-{secrets.token_hex(8)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield scratch
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = target if error.filename == str(scratch) else blamed(error, target)
        raise DataError(f"{where} cannot be written: {error.strerror or error}") from None

"""Files that appear whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msprobe_client.errors import DataError


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
        where = target if error.filename in (None, str(scratch)) else error.filename
        raise DataError(f"{where} cannot be written: {error.strerror or error}") from None

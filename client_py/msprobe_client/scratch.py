"""Temporary directories, which go even if their client is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "msprobe-compare-"
_YOUNG_S = 60  # its client may not have locked it yet


@contextmanager
def scratch_directory(prefix: str = PREFIX, parent: str | None = None) -> Iterator[str]:
    """A new directory in `parent`, TMPDIR if that is None; gone afterwards.

    Clears those with this prefix and of this user whose client was killed: nobody holds their lock.
    """
    for left in Path(parent or tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            _clear(left)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as path,
        _locked(Path(path)),
    ):
        yield path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """BlockingIOError: another process holds it."""
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)


def _clear(path: Path) -> None:
    about = path.lstat()
    if about.st_uid != os.getuid() or time.time() - about.st_mtime < _YOUNG_S:
        return
    with _locked(path):
        shutil.rmtree(path, ignore_errors=True)

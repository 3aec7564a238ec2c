"""Backups of a server's data directory: written from a stream of files, checked, and restored.

A backup is a directory: the files of a data directory, and backup.json, which is written last and names each of them
with its size and SHA-256. A directory without it is no backup (it was interrupted).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from msprobe_client.errors import DataError, FailedPrecondition, NotFound

MANIFEST = "backup.json"
LOCK = "msprobe-server.lock"
_BLOCK = 1 << 20


class Chunk(Protocol):
    path: str
    content: bytes
    last: bool
    server_id: str
    storage_format: int


@dataclass(frozen=True)
class BackupReport:
    directory: Path
    files: int
    bytes: int
    server_id: str


def write(chunks: Iterable[Chunk], directory: Path) -> BackupReport:
    """Refuses a directory that is not empty. Files are synced before the manifest names them."""
    _make_empty(directory)
    entries: dict[str, dict[str, int | str]] = {}
    server_id, storage_format = "", 0
    with contextlib.ExitStack() as open_file:
        file: BinaryIO | None = None
        digest, path, size = hashlib.sha256(), "", 0
        for chunk in chunks:
            server_id = chunk.server_id or server_id
            storage_format = chunk.storage_format or storage_format
            if chunk.path:
                path, digest, size = _checked(chunk.path), hashlib.sha256(), 0
                file = open_file.enter_context(_new(directory, path))
            if file is None:
                raise DataError("the server sent content that belongs to no file")
            file.write(chunk.content)
            digest.update(chunk.content)
            size += len(chunk.content)
            if chunk.last:
                file.flush()
                os.fsync(file.fileno())
                open_file.close()
                file = None
                entries[path] = {"bytes": size, "sha256": digest.hexdigest()}
        if file is not None or not entries:
            raise DataError("the backup ended in the middle")
    manifest = {"server_id": server_id, "storage_format": storage_format, "files": entries}
    partial = f"{MANIFEST}.partial"
    with _new(directory, partial) as scratch:
        scratch.write(json.dumps(manifest, indent=1).encode())
    (directory / partial).rename(directory / MANIFEST)
    return BackupReport(directory, len(entries), sum(int(entry["bytes"]) for entry in entries.values()), server_id)


def restore(backup: Path, data_dir: Path) -> BackupReport:
    """Refuses a data directory that is not empty or in use, and a backup with one wrong byte."""
    manifest = _manifest(backup)
    entries = manifest["files"]
    with _locked_empty(data_dir):
        for path, entry in entries.items():
            digest, size = hashlib.sha256(), 0
            with (backup / path).open("rb") as source, _new(data_dir, _checked(path)) as copy:
                while block := source.read(_BLOCK):
                    copy.write(block)
                    digest.update(block)
                    size += len(block)
                copy.flush()
                os.fsync(copy.fileno())
            if (size, digest.hexdigest()) != (entry["bytes"], entry["sha256"]):
                for part in ("store", "segments"):
                    shutil.rmtree(data_dir / part, ignore_errors=True)
                raise DataError(
                    f"{backup / path} is damaged: {size} bytes with the hash {digest.hexdigest()[:12]}..., "
                    f"{entry['bytes']} with {entry['sha256'][:12]}... were written; nothing was restored"
                )
    return BackupReport(
        data_dir, len(entries), sum(int(entry["bytes"]) for entry in entries.values()), manifest["server_id"]
    )


def _close(directory: Path) -> None:
    """Closes the directory to others, because it holds all of the server's data. Somebody else's directory stays as it
    is.
    """
    if directory.stat().st_mode & 0o077 and directory.stat().st_uid == os.geteuid():
        directory.chmod(0o700)


def _new(root: Path, path: str) -> BinaryIO:
    """A new file that nobody else may read."""
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        (root / parent).mkdir(mode=0o700, exist_ok=True)
    return os.fdopen(os.open(root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _make_empty(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FailedPrecondition(f"{directory} is not empty; a backup needs a directory of its own")
    _close(directory)


def _checked(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise DataError(f"a backup names the file {path!r}, which lies outside of it")
    return path


def _manifest(backup: Path) -> dict[str, Any]:
    file = backup / MANIFEST
    if not backup.is_dir():
        raise NotFound(f"there is no backup {backup}")
    if not file.is_file():
        raise FailedPrecondition(f"{backup} is not a backup, or one that was interrupted: it has no {MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(file.read_text())
        for path, entry in manifest["files"].items():
            _checked(path)
            if not (backup / path).is_file():
                raise DataError(f"the backup {backup} lacks {path}")
            int(entry["bytes"]), str(entry["sha256"])
        str(manifest["server_id"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is not what a backup writes: {error}") from None
    return manifest


@contextlib.contextmanager
def _locked_empty(data_dir: Path) -> Iterator[None]:
    """Holds the directory's lock as a server would: no server can start there meanwhile."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FailedPrecondition(f"{data_dir} is in use by a msprobe-server; end it first") from None
        if names := sorted(entry.name for entry in data_dir.iterdir() if entry.name != LOCK):
            raise FailedPrecondition(f"{data_dir} is not empty (it has {names[0]}); restore into a new directory")
        _close(data_dir)
        yield

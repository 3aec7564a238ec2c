"""Backups as files: whole or refused, byte for byte."""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from msprobe_client import backup
from msprobe_client.errors import DataError, FailedPrecondition, NotFound


@dataclass
class Chunk:
    path: str = ""
    content: bytes = b""
    last: bool = False
    server_id: str = ""
    storage_format: int = 0


def chunks() -> list[Chunk]:
    return [
        Chunk("segments/0000000001.segment", b"content", True, "abc", 2),
        Chunk("store/CURRENT", b"MANIFEST-1\n", True),
        Chunk("store/000001.sst", b"first"),
        Chunk("", b"second", True),
        Chunk("store/empty", b"", True),
    ]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    backup.write(chunks(), tmp_path / "backup")
    return tmp_path / "backup"


def test_what_is_restored_is_what_was_written(written: Path, tmp_path: Path) -> None:
    report = backup.restore(written, tmp_path / "data")
    assert (report.files, report.bytes, report.server_id) == (4, 29, "abc")
    assert (tmp_path / "data" / "store" / "000001.sst").read_bytes() == b"firstsecond"
    assert (tmp_path / "data" / "store" / "empty").read_bytes() == b""
    assert (tmp_path / "data" / "segments" / "0000000001.segment").read_bytes() == b"content"


def test_nobody_else_reads_a_backup_or_what_is_restored(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "data").mkdir()
        backup.write(chunks(), tmp_path / "backup")
        backup.restore(tmp_path / "backup", tmp_path / "data")
    finally:
        os.umask(before)
    for made in (tmp_path / "backup", tmp_path / "data"):
        for path in (made, *made.rglob("*")):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_backup_wants_a_directory_of_its_own(written: Path) -> None:
    with pytest.raises(FailedPrecondition, match="not empty"):
        backup.write(chunks(), written)


def test_an_interrupted_backup_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ended in the middle"):
        backup.write(chunks()[:3], tmp_path / "backup")
    with pytest.raises(FailedPrecondition, match="interrupted"):
        backup.restore(tmp_path / "backup", tmp_path / "data")
    with pytest.raises(NotFound):
        backup.restore(tmp_path / "none", tmp_path / "data")


def test_a_wrong_byte_is_found_and_nothing_is_left(written: Path, tmp_path: Path) -> None:
    (written / "store" / "000001.sst").write_bytes(b"firstsecomd")
    with pytest.raises(DataError, match=r"000001\.sst is damaged"):
        backup.restore(written, tmp_path / "data")
    assert not (tmp_path / "data" / "store").exists()
    assert not (tmp_path / "data" / "segments").exists()


def test_a_missing_file_is_named(written: Path, tmp_path: Path) -> None:
    (written / "store" / "000001.sst").unlink()
    with pytest.raises(DataError, match=r"lacks store/000001\.sst"):
        backup.restore(written, tmp_path / "data")


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "store/../../evil"])
def test_a_path_never_leaves_the_backup(written: Path, tmp_path: Path, path: str) -> None:
    with pytest.raises(DataError, match="outside"):
        backup.write([Chunk(path, b"x", True)], tmp_path / "other")
    manifest = json.loads((written / backup.MANIFEST).read_text())
    manifest["files"][path] = {"bytes": 1, "sha256": ""}
    (written / backup.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="outside"):
        backup.restore(written, tmp_path / "data")


def test_a_data_directory_in_use_or_not_empty_is_refused(written: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with (data / backup.LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FailedPrecondition, match="in use"):
            backup.restore(written, data)
    (data / "mine").touch()
    with pytest.raises(FailedPrecondition, match="not empty"):
        backup.restore(written, data)

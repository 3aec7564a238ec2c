"""Directories of clients that were killed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from msprobe_client.scratch import PREFIX, scratch_directory


def test_directories_of_killed_clients_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, young = tmp_path / f"{PREFIX}killed", tmp_path / f"{PREFIX}young"
    (killed / "inner").mkdir(parents=True)
    young.mkdir()
    with scratch_directory() as used:
        for old in (killed, Path(used)):
            os.utime(old, (0, 0))
        with scratch_directory() as other:
            assert sorted(tmp_path.iterdir()) == sorted([young, Path(used), Path(other)])
    assert list(tmp_path.iterdir()) == [young]

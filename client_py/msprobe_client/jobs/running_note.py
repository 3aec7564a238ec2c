"""What a worker process is doing, in a file that outlives it: whoever finds it dead knows which item it was running."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FORM: Final = struct.Struct("<QIQ?dd")


@dataclass(frozen=True, slots=True)
class Running:
    """lease 0: none is held."""

    lease: int = 0
    job: int = 0
    item: int = 0
    running: bool = False  # the item; else the process is between items
    since: float = 0.0  # time.monotonic of this machine
    timeout: float = 0.0  # seconds that the item may run


class RunningNote:
    """Written by one process, read by another."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, now: Running) -> None:
        os.pwrite(self._file, _FORM.pack(now.lease, now.job, now.item, now.running, now.since, now.timeout), 0)

    def read(self) -> Running:
        content = os.pread(self._file, _FORM.size, 0)
        return Running(*_FORM.unpack(content)) if len(content) == _FORM.size else Running()

    def close(self) -> None:
        os.close(self._file)

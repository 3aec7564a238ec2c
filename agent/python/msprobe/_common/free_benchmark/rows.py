"""free_benchmark.csv: a row for each result that is too far from the first."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index")


class Rows:
    """The file, which the processes of a job may share: each row is one write at the end. Threads: any.

    It begins with the first row. What another run left there stays, with this run's rows behind.
    """

    def __init__(self, path: Path, columns: Sequence[str] = COLUMNS) -> None:
        """columns: what stands in the header in place of COLUMNS."""
        self.path = path
        self._columns = columns
        self._file: int | None = None

    def write(self, values: dict[str, Any]) -> None:
        """values: by COLUMNS. OSError: the row is not there."""
        if self._file is None:
            self._begin()
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.write(self._file, _line([values[name] for name in COLUMNS]))

    def _begin(self) -> None:
        """The file stands there with its header from the first moment on, whoever makes it."""
        if self.path.exists():
            return
        made = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        made.write_bytes(_line(self._columns))
        try:
            with contextlib.suppress(FileExistsError):
                os.link(made, self.path)
        except OSError:  # a file system without links
            made.replace(self.path)
        finally:
            made.unlink(missing_ok=True)


def _line(values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


__all__ = ["COLUMNS", "Rows"]

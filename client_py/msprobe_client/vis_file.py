"""Graph databases: their names, and what they say of themselves."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msprobe_client.errors import DataError, InvalidArgument

SUFFIX = ".vis.db"


def vis_file(output: Path, *, compare: bool) -> Path:
    """The file that output names: itself, or one in it by mindstudio-probe's name, build_{YYYYmmddHHMMSS}.vis.db."""
    if output.name.endswith(SUFFIX) and not output.is_dir():
        return output
    if output.is_file():
        raise InvalidArgument(f"{output} is a file; name a directory or NAME{SUFFIX}")
    return output / f"{'compare' if compare else 'build'}_{time.strftime('%Y%m%d%H%M%S')}{SUFFIX}"


def steps_and_ranks(file: Path) -> tuple[int, int]:
    """How many of each a graph database has."""
    whole = f"{file.resolve().as_uri()}?immutable=1"  # leaves no -wal and -shm
    try:
        with closing(sqlite3.connect(whole, uri=True)) as database:
            steps, ranks = database.execute("SELECT step_list, rank_list FROM tb_config").fetchone()
    except sqlite3.Error as error:
        raise DataError(f"the server sent no graph database: {error}") from None
    return len(json.loads(steps)), len(json.loads(ranks))


def other_graphs(file: Path) -> Iterator[str]:
    """A warning where TensorBoard would not show the file: its plugins open one of a directory."""
    others = sorted(path.name for path in file.parent.glob(f"*{SUFFIX}") if path.name != file.name)
    if others:
        yield f"{file.parent} also holds {', '.join(others)}; TensorBoard shows one graph of a directory"

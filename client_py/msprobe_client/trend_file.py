"""Trend databases: their names, and what they are made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["dump", "monitor"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SUFFIX = ".trend.db"
# Directories of a rank, as TrainerMon and TrainerMonitorV2 name them.
_MONITORED = re.compile(r".*-rank\d+-.*|rank_\d+")


def trend_file(output: Path, kind: Kind) -> Path:
    """The file that output names: itself, or one in it by mindstudio-probe's name."""
    if output.name.endswith(SUFFIX) and not output.is_dir():
        return output
    return output / f"{kind}_data{SUFFIX}"


def kinds_in(directory: Path) -> list[Kind]:
    """What a directory holds, by its files: a dump, what a training monitor wrote, both, or neither."""
    found: list[Kind] = []
    if directory.is_file() or any(any(directory.glob(f"{above}dump.json")) for above in ("", "*/", "*/*/")):
        found.append("dump")
    if directory.is_dir() and any(
        child.is_dir() and _MONITORED.fullmatch(child.name) and any(child.glob("*.csv")) for child in directory.iterdir()
    ):
        found.append("monitor")
    return found

"""Names of mindstudio-probe's result files."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def result_file_names(suffix: str, several: bool | None = None) -> Callable[[Any], str]:
    """Of each table: compare_result_{YYYYmmddHHMMSS}.csv, with rank or process where the dump has them in its path.

    several: whether the name has the rank; by default it does. The step stands before where there are several.
    """
    started = time.strftime("%Y%m%d%H%M%S")
    taken: set[str] = set()

    def name(chunk: Any) -> str:
        start = "debug_compare_result" if chunk.debug else "compare_result"
        rank = f"_{'rank' if chunk.rank.kind else 'proc'}{chunk.rank.number}" if several is not False else ""
        plain = f"{start}{rank}_{started}.{suffix}"
        if plain in taken:
            plain = f"{start}_step{chunk.step}{rank}_{started}.{suffix}"
        taken.add(plain)
        return plain

    return name

"""Finding a step and rank in the directory of an earlier dump, of this tool or mindstudio-probe."""

from __future__ import annotations

from pathlib import Path


def rank_directory(dump: str | Path, step: int, rank: int | None) -> Path | None:
    """``{dump}/step{N}/rank{R}``; without a rank the step's only directory, or its only ``proc``. None: the dump has no
    such directory."""
    parent = Path(dump) / f"step{step}"
    if rank is not None and (parent / f"rank{rank}").is_dir():
        return parent / f"rank{rank}"
    try:
        found = sorted(path for path in parent.iterdir() if path.is_dir())
    except OSError:
        return None
    processes = [path for path in found if path.name.startswith("proc")]
    for candidates in (found, processes):
        if len(candidates) == 1 and (rank is None or candidates[0] in processes):
            return candidates[0]
    return None

"""Comparing all ranks of a step as version 26 of mindstudio-probe does."""

from __future__ import annotations

from typing import Any

from msprobe.pytorch.compare.pt_compare import pt_compare


def compare_distributed(npu_dump_dir: str, bench_dump_dir: str, output_path: str, **kwargs: Any) -> None:
    """Writes compare_result_rank{R}_{time}.csv of every rank. kwargs: those of pt_compare."""
    pt_compare({"npu_path": npu_dump_dir, "bench_path": bench_dump_dir}, output_path, **kwargs)

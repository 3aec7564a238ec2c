"""Comparing dumps from Python, as mindstudio-probe has it.

``from msprobe.pytorch import compare, compare_distributed`` are the functions of its 1.0 line, which write xlsx.
``compare.pt_compare.pt_compare`` and ``compare.distributed_compare.compare_distributed`` are those of version 26, which
write csv. All need msprobe-client, and raise MsprobeError with one line where something is wrong.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any

from msprobe._common.errors import MsprobeError
from msprobe._common.with_client import with_client


def compare(
    input_param: Mapping[str, Any],
    output_path: str,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
) -> None:
    """Writes compare_result_{time}.xlsx, and with auto_analyze advisor_{time}.txt, of two dump.json.

    input_param: {"npu_json_path": ..., "bench_json_path": ...}, or the names without _json.
    """

    def work() -> None:
        from msprobe_client.compat.v1_compare_command import compare_v1, paths_of

        target, golden = paths_of(dict(input_param), "input_param")
        compare_v1(target, golden, output_path, stacks=stack_mode, advice=auto_analyze, fuzzy=fuzzy_match)

    with_client(work)


def compare_distributed(npu_dump_dir: str, bench_dump_dir: str, output_path: str, **kwargs: Any) -> None:
    """Writes compare_result_rank{R}_{time}.xlsx of every rank of a step. kwargs: those of compare."""
    unknown = sorted(kwargs.keys() - {"stack_mode", "auto_analyze", "fuzzy_match"})
    if unknown:
        raise MsprobeError(
            f"compare_distributed: {unknown[0]} is not known; it takes stack_mode, auto_analyze, fuzzy_match"
        )
    compare({"npu_path": npu_dump_dir, "bench_path": bench_dump_dir}, output_path, **kwargs)


class _Callable(types.ModuleType):
    """`compare` is a function to some and a package to others."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        compare(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

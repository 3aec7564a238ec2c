"""Comparing two dump.json as version 26 of mindstudio-probe does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe._common.errors import MsprobeError
from msprobe._common.with_client import with_client

# Of version 26's: what it takes and does not use, or writes to its log.
_WITHOUT_EFFECT = ("suffix", "is_print_compare_log", "layer_mapping")
_KNOWN = (
    "fuzzy_match",
    "xlsx",
    "data_mapping",
    "cell_mapping",
    "first_diff_analyze",
    "consistent_check",
    "backend",
    "config",
)


def pt_compare(input_param: Mapping[str, Any], output_path: str, **kwargs: Any) -> None:
    """Writes compare_result_{time}.csv (xlsx=True: xlsx) of input_param["npu_path"] and ["bench_path"]."""
    unknown = sorted(kwargs.keys() - {*_KNOWN, *_WITHOUT_EFFECT})
    if unknown:
        raise MsprobeError(f"{unknown[0]} is not known; known are {', '.join(_KNOWN)}")

    def work() -> None:
        from msprobe_client import name_mapping
        from msprobe_client.compat.compare_command import sides, training_backend, write_results
        from msprobe_client.compat.v1_compare_command import paths_of

        target, golden = sides(*paths_of(dict(input_param), "input_param"))
        analyze = bool(kwargs.get("first_diff_analyze"))
        training = training_backend(bool(kwargs.get("consistent_check")), kwargs.get("backend"), analyze=analyze)
        data, cell = kwargs.get("data_mapping"), kwargs.get("cell_mapping")
        results = write_results(
            target,
            golden,
            Path(output_path),
            xlsx=bool(kwargs.get("xlsx")),
            fuzzy=bool(kwargs.get("fuzzy_match")),
            analyze=analyze,
            mapping=name_mapping.mapping(data=data, cell=cell) if data or cell else None,
            config=kwargs.get("config"),
            training=training,
        )
        for path in results:
            print(f"The result file path is: {path}.")

    with_client(work)

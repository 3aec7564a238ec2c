"""What a configuration can ask that MindSpore cannot do, and what can be done instead."""

import json
from typing import Any

import mindspore

from msprobe._common.errors import MsprobeError
from msprobe.mindspore._cell_dump import are_in_graphs

_OF_GRAPHS = ("statistics", "tensor")  # the tasks that level L2, and L0 of graphs, have as well


def refuse(config: Any) -> None:
    """MsprobeError: what is asked, and what would be right."""
    in_graph_mode = mindspore.get_context("mode") == mindspore.GRAPH_MODE
    if config.task not in _OF_GRAPHS and in_graph_mode:
        raise MsprobeError(
            f"task is {config.task!r}, which looks at calls in PyNative mode, and the program runs in GRAPH_MODE; set "
            "mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"
        )
    if config.level != "debug" and in_graph_mode:
        cells = "level L0, which dumps cells of graphs, or " if are_in_graphs() else ""
        raise MsprobeError(
            f"level is {config.level!r}, which records calls in PyNative mode, and the program runs in GRAPH_MODE; "
            f"set mindspore.set_context(mode=mindspore.PYNATIVE_MODE), or {cells}level L2, which has MindSpore dump "
            "its kernels"
        )
    asked = {
        "communication": config.communication,
        "model_series": bool(config.model_series),
        "load": config.load is not None,
        "capture": config.capture == "all",
        "backward": config.backward == "exact",
        **_of_free_benchmark(config),
    }
    written = json.loads(config.json)
    for field, is_asked in asked.items():
        if is_asked:
            value = written.get(field, getattr(config, field))
            raise MsprobeError(f"{field} is {value!r}; it is for PyTorch, leave it out for MindSpore")


def _of_free_benchmark(config: Any) -> dict[str, bool]:
    """field -> whether it asks for what compares with the CPU, which mindstudio-probe has for PyTorch alone."""
    if config.task != "free_benchmark":
        return {}
    return {"pert_mode": config.pert_mode == "to_cpu", "if_preheat": config.if_preheat}

"""Level L0 in GRAPH_MODE, on Ascend: operators in the graph write what goes into each cell and comes out of it.

TensorDump writes a tensor of the forward pass, and DumpGradient the gradient of one in the backward pass. They stand
around a cell's construct from before it is compiled.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
from mindspore import Tensor, ops

from msprobe._common.errors import MsprobeError
from msprobe.mindspore._cell_names import named_cells
from msprobe.mindspore._kernel_dump import (
    call_native,
    section_of,
    settings_of_kernels,
    wait_for_graphs,
    write_settings,
)

_TASKS = ("statistics", "tensor")
_MODES = ("all", "forward", "backward")
_UNFILTERED = ("rank", "scope", "list", "tensor_list", "select", "schedule")
_OPERATOR = "TensorDump"
# A tensor under this name ends TensorDump's step.
_END_OF_STEP = "<tensordump-update-step>"
# The operator fills these in.
_FOLDER = "{step}/{rank}/dump_tensor_data"


def are_in_graphs() -> bool:
    """Whether graphs of this program can have the operators."""
    return mindspore.get_context("mode") == mindspore.GRAPH_MODE and mindspore.get_context("device_target") == "Ascend"


class CellDump:
    """Every run of the graph is dumped, whether between start and stop or not; `step` of the configuration chooses.

    Afterwards `msprobe-client import DUMP_PATH` stores what was written. One thread at a time.
    """

    def __init__(self, asked: dict[str, Any], config: Any) -> None:
        """config: that of what is asked. MsprobeError: it asks for more than there is in graphs."""
        self._config = config
        self._dumped = 0  # so many of the models have the operators
        if config.task not in _TASKS:
            raise MsprobeError(f"task is {config.task!r}; at level L0 in GRAPH_MODE it should be one of {list(_TASKS)}")
        section = section_of(asked)
        for field in _UNFILTERED:
            value = section.get(field) or asked.get(field)
            if value:
                raise MsprobeError(
                    f"{field} is {value!r}; at level L0 in GRAPH_MODE every cell of every rank is dumped, leave it out"
                )
        mode = section.get("data_mode") or ["all"]
        if len(mode) != 1 or mode[0] not in _MODES:
            raise MsprobeError(f"data_mode is {mode!r}; at level L0 in GRAPH_MODE it should be one of {list(_MODES)}")
        self._mode = mode[0]
        summary = section.get("summary_mode") or "statistics"
        if summary != "statistics":
            raise MsprobeError(f"summary_mode is {summary!r}; at level L0 in GRAPH_MODE it should be 'statistics'")
        if not hasattr(ops, "DumpGradient"):
            raise MsprobeError(
                f"level is 'L0', and MindSpore {mindspore.__version__} has no operator DumpGradient, which GRAPH_MODE "
                "needs for it; 2.7.0 and later have it"
            )
        os.environ["MS_JIT_MODULES"] = "msprobe"  # which MindSpore then compiles, as if the program had it
        if config.task == "statistics":
            self._ask_for_statistics(section)
        call_native("_tensordump_set_step", list(config.step))

    @classmethod
    def of(cls, asked: dict[str, Any], config: Any) -> CellDump | None:
        """None: another level is asked, or the program has no such graphs."""
        return cls(asked, config) if config.level == "L0" and are_in_graphs() else None

    def start(self, models: list[Any], step: int, rank: int | None) -> str:
        """What is dumped from now on, as part of a sentence; empty: it was said before.

        models: those of before, and further ones.
        """
        if not models:
            raise MsprobeError("missing the parameter 'model': level L0 records modules; call start(model=...)")
        fresh, self._dumped = models[self._dumped :], len(models)
        for model in fresh:
            for cell, name, _ in named_cells(model):
                if name and not type(cell).__name__.startswith("_"):  # those of MindSpore's own
                    cell.construct = self._dumping(cell.construct, name).__get__(cell, type(cell))
        return "what cells of its graphs get and give" if fresh else ""

    def stop(self) -> None:
        """Nothing: the operators are compiled into the graph."""

    def end_step(self) -> None:
        wait_for_graphs()
        if self._config.task == "statistics":
            call_native("_dump_step", 1)
            return
        # Kernels of a device and the host count their steps apart.
        operator, mark = ops.TensorDump(), Tensor([1.0])
        importlib.import_module("mindspore.ops.primitive")._run_op(operator, _OPERATOR, (_END_OF_STEP, mark))
        operator(_END_OF_STEP, mark)

    def _ask_for_statistics(self, section: dict[str, Any]) -> None:
        """The operators are kernels whose own input MindSpore describes, and which then need not run."""
        name, settings = settings_of_kernels(self._config.task, {}, self._config)
        settings["common_dump_settings"] |= {"dump_mode": 1, "kernels": [_OPERATOR], "op_debug_mode": 0}
        settings["e2e_dump_settings"] = {
            **{"enable": False, "trans_flag": True},
            **{"stat_calc_mode": "device", "device_stat_precision_mode": section.get("precision", "high")},
        }
        write_settings(Path(self._config.dump_path, f"{os.environ.get('RANK_ID', '0')}{name}"), settings)
        os.environ["MS_KERNEL_LAUNCH_SKIP"] = _OPERATOR
        call_native("_set_init_iter", 0)

    def _dumping(self, construct: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The construct of a cell between operators."""
        # A kernel's name in statistic.csv ends at its first dot.
        dot = "-" if self._config.task == "statistics" else "."
        path = f"{self._config.dump_path}/{_FOLDER}/{name.replace('.', dot)}{dot}"
        forward, backward = f"{path}forward{dot}", f"{path}backward{dot}"
        paths = (f"{forward}input{dot}", f"{backward}output{dot}", f"{forward}output{dot}", f"{backward}input{dot}")
        return _between_dumps(construct, paths, self._mode != "backward", self._mode != "forward")


def _between_dumps(
    construct: Callable[..., Any], paths: tuple[str, str, str, str], forward: bool, backward: bool
) -> Callable[..., Any]:
    """What MindSpore compiles in place of a construct: so what stands in it is what graphs know.

    paths: of each argument, its gradient, each result and its gradient, up to the number.
    """
    of_argument, of_argument_gradient, of_result, of_result_gradient = paths
    dump, dump_gradient = ops.TensorDump(), ops.DumpGradient()
    dump.add_prim_attr("side_effect_io", False)  # it runs when its tensor is there, in no order with others
    dump.add_prim_attr("td_flag", True)

    def dumped(value, path, gradient_path):  # type: ignore[no-untyped-def]
        if backward and ops.is_tensor(value):
            value = dump_gradient(gradient_path, value, "in")
        if forward and ops.is_tensor(value):
            value = ops.depend(value, dump(path, value))
        return value

    def construct_between_dumps(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        given = []
        for index, value in enumerate(args):
            given.append(dumped(value, of_argument + str(index), of_argument_gradient + str(index)))
        result = construct(*given, **kwargs)
        if not isinstance(result, tuple):
            return dumped(result, of_result + "0", of_result_gradient + "0")
        results = []
        for index, value in enumerate(result):
            results.append(dumped(value, of_result + str(index), of_result_gradient + str(index)))
        return tuple(results)

    return construct_between_dumps

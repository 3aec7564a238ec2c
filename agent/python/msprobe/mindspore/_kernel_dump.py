"""Level L2: MindSpore dumps its kernels itself. A file says what it dumps, and calls say when."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import mindspore

from msprobe import _mindspore
from msprobe._common import log
from msprobe._common.config_file import ConfigFile
from msprobe._common.errors import MsprobeError
from msprobe.mindspore._gradients import graph_api

_TASKS = ("statistics", "tensor", "exception_dump", "overflow_check")
_EXCEPTIONS = ("exception_dump", "overflow_check")
# op_debug_mode of MindSpore's dump: which exceptions are looked for.
_ANY_EXCEPTION = 4
_OVERFLOWS = {"aicore": 1, "atomic": 2, "all": 3}
# Variables that name the file of who dumps: MindSpore, or Ascend's runtime where a whole graph is one of its models.
_OF_MINDSPORE, _OF_ACL = "MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH"
_SIDES = {("input",): 1, ("output",): 2}  # data_mode -> input_output; 0: both
_CHOICES = {"device": ("host", "device"), "precision": ("high", "low"), "check_mode": tuple(_OVERFLOWS)}
_CATEGORIES = (
    "max",
    "min",
    "mean",
    "l2norm",
    "count",
    "negative zero count",
    "positive zero count",
    "zero count",
    "nan count",
    "negative inf count",
    "positive inf count",
    "hash",
    "md5",
)
# What L2 does not know, and what it has instead.
_INSTEAD = {"schedule": "step, a list of steps", "select": "list, names of kernels"}
# What MindSpore has beside the choices that a refusal names, by the refused field.
_FURTHER = {
    "level": "MindSpore has level 'L2' as well, which has it dump its kernels.",
    "task": "MindSpore has the tasks 'exception_dump' and 'overflow_check' as well, at level 'L2'.",
}
# Up to here md5 is a category of its own; later it is a kind of hash.
_LAST_WITH_MD5 = (2, 7, 0)


def dumps_kernels(asked: dict[str, Any]) -> bool:
    """Whether a configuration has MindSpore dump, which reads that once, when its backend starts."""
    return asked.get("level") == "L2" or asked.get("task") in _EXCEPTIONS


class KernelConfigFile(ConfigFile):
    """At level L2, checks the fields that L1 has as those of L1. KernelDump checks the others."""

    native = _mindspore

    def parse(self, text: str | None = None, dump_path: str | None = None) -> Any:
        asked = self.asked(text)
        if not dumps_kernels(asked):
            try:
                return super().parse(text, dump_path)
            except MsprobeError as error:
                further = _FURTHER.get(str(error).partition(" ")[0])
                if further is None or "it should be one of" not in str(error):
                    raise
                raise MsprobeError(f"{error} {further}") from None
        for name, instead in _INSTEAD.items():
            if asked.get(name):
                raise MsprobeError(
                    f"{name} is {asked[name]!r}; at level L2 MindSpore chooses what it dumps, by {instead}"
                )
        section = section_of(asked)
        fields = {name: value for name, value in asked.items() if not isinstance(value, dict)}
        fields |= {"level": "L1", "task": "statistics"}
        fields["statistics"] = {name: section[name] for name in ("list", "data_mode") if name in section}
        try:
            return self.native.parse_config(
                json.dumps(fields), task=None, dump_path=dump_path, level=None, step=self.overrides["step"]
            )
        except ValueError as error:
            raise MsprobeError(str(error)) from None


class KernelDump:
    """What MindSpore is asked to dump. It reads that once, when its backend starts: the debugger is constructed before
    the first kernel runs, and before communication.init.

    Afterwards `msprobe-client import DUMP_PATH` stores what it wrote. One thread at a time.
    """

    def __init__(self, asked: dict[str, Any], config: Any) -> None:
        """config: of KernelConfigFile. MsprobeError: what L2 alone has is wrong."""
        self._config = config
        task = str(asked.get("task") or "statistics")
        if asked.get("level") != "L2":
            raise MsprobeError(
                f"task is {task!r}, which makes MindSpore dump kernels, and level is {asked.get('level', 'L1')!r}; set "
                "level to 'L2', or task to 'nan_check', which finds NaN and Inf at the other levels"
            )
        if task not in _TASKS:
            raise MsprobeError(f"task is {task!r}; at level L2 it should be one of {list(_TASKS)}")
        section = section_of(asked)
        for field, choices in _CHOICES.items():
            if field in section and section[field] not in choices:
                raise MsprobeError(f"{field} is {section[field]!r}; it should be one of {list(choices)}")
        if task in _EXCEPTIONS and config.step:
            log.warning(f"step is {config.step}; task {task} looks at every step")
        if task not in _EXCEPTIONS and _jit_level() == "O2":
            name, settings = f"acl_dump_{os.environ.get('DEVICE_ID', '0')}.json", _of_acl(task, section, config)
            write_settings(Path(config.dump_path, name), settings, _OF_ACL)
        else:
            name, settings = (_exceptions if task in _EXCEPTIONS else settings_of_kernels)(task, section, config)
            write_settings(Path(config.dump_path, name), settings)
        if mindspore.get_context("mode") != mindspore.GRAPH_MODE:
            log.warning(
                "level is L2 and the program runs in PyNative mode, where MindSpore dumps only what mindspore.jit "
                "compiles; levels L0, L1 and mix record the calls of PyNative mode"
            )
        call_native("_dump_set_dynamic")
        self._is_counting = False

    @classmethod
    def of(cls, asked: dict[str, Any], config: Any) -> KernelDump | None:
        """None: the configuration asks for another level."""
        return cls(asked, config) if dumps_kernels(asked) else None

    def start(self, models: list[Any], step: int, rank: int | None) -> str:
        """What is dumped from now on, as part of a sentence; empty: nothing of this step and rank.

        models: not needed, as kernels know of none.
        """
        if not self._is_counting:
            self._is_counting = True
            call_native("_set_init_iter", step)
        wanted = (not self._config.step or step in self._config.step) and (
            not self._config.rank or rank in self._config.rank
        )
        if wanted:
            call_native("_dump_start")
        return "its kernels" if wanted else ""

    def stop(self) -> None:
        wait_for_graphs()
        call_native("_dump_stop")

    def end_step(self) -> None:
        call_native("_dump_step", 1)


def wait_for_graphs() -> None:
    """Graphs run behind the program; what runs later would be of the next step."""
    executor = getattr(graph_api(), "_pynative_executor", None)
    if executor is not None:
        executor.sync()
    if mindspore.get_context("device_target") != "CPU":
        mindspore.runtime.synchronize()


def write_settings(path: Path, settings: dict[str, Any], variable: str = _OF_MINDSPORE) -> None:
    """variable: of the environment, by which the file is found. MsprobeError: it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=4), encoding="utf-8")
    except OSError as error:
        raise MsprobeError(f"dump_path: {path} cannot be written: {error}") from None
    for other in (_OF_MINDSPORE, _OF_ACL):  # which would dump beside it
        os.environ.pop(other, None)
    os.environ[variable] = str(path)


def call_native(name: str, *arguments: Any) -> None:
    """A version without this function dumps what the file says, from the first kernel on."""
    function = getattr(importlib.import_module("mindspore._c_expression"), name, None)
    if function is not None:
        function(*arguments)


def section_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Of its task."""
    section = asked.get(str(asked.get("task") or "statistics"))
    return section if isinstance(section, dict) else {}


def _common(config: Any, saved_data: str) -> dict[str, Any]:
    return {
        "dump_mode": 0,
        "path": config.dump_path,
        "net_name": "Net",
        "iteration": "all",
        "saved_data": saved_data,
        "input_output": 0,
        "kernels": [],
        "support_device": list(config.rank) or list(range(8)),
    }


def settings_of_kernels(task: str, section: dict[str, Any], config: Any) -> tuple[str, dict[str, Any]]:
    """The name of the file and what stands in it."""
    common = _common(config, "tensor" if task == "tensor" else "statistic")
    if config.list:
        common |= {"dump_mode": 1, "kernels": list(config.list)}
    if config.step:
        common["iteration"] = "|".join(map(str, config.step))
    common["input_output"] = _SIDES.get(tuple(section.get("data_mode") or ()), 0)
    common["statistic_category"] = _categories(section.get("summary_mode") or "statistics")
    end_to_end: dict[str, Any] = {"enable": not config.async_dump, "trans_flag": True}
    if task == "statistics":
        end_to_end["stat_calc_mode"] = section.get("device", "host")
        end_to_end["device_stat_precision_mode"] = section.get("precision", "high")
    return "kernel_kbyk_dump.json", {"common_dump_settings": common, "e2e_dump_settings": end_to_end}


def _of_acl(task: str, section: dict[str, Any], config: Any) -> dict[str, Any]:
    """What the dump of Ascend's runtime reads."""
    mode = tuple(section.get("data_mode") or ())
    settings: dict[str, Any] = {
        "dump_path": config.dump_path,
        "dump_mode": mode[0] if mode in _SIDES else "all",
        "dump_data": "tensor" if task == "tensor" else "stats",
        "dump_op_switch": "on",
        "dump_list": [{"layer": list(config.list)}] if config.list else [],
    }
    if config.step:
        settings["dump_step"] = "|".join(map(str, config.step))
    return {"dump": settings}


def _jit_level() -> str:
    """O0, O1 or O2, of a program in GRAPH_MODE; empty where it names none."""
    if mindspore.get_context("mode") != mindspore.GRAPH_MODE:
        return ""
    return mindspore.context.get_jit_config().get("jit_level") or mindspore.get_context("jit_level") or ""


def _exceptions(task: str, section: dict[str, Any], config: Any) -> tuple[str, dict[str, Any]]:
    common = _common(config, "tensor")
    is_any = task == "exception_dump"
    common["op_debug_mode"] = _ANY_EXCEPTION if is_any else _OVERFLOWS[section.get("check_mode", "all")]
    common["file_format"] = "npy"
    name = "kernel_graph_exception_check.json" if is_any else "kernel_graph_overflow_check.json"
    end_to_end = {"enable": not config.async_dump, "trans_flag": True}
    return name, {"common_dump_settings": common, "e2e_dump_settings": end_to_end}


def _categories(asked: Any) -> list[str]:
    """Of statistic.csv, in MindSpore's words."""
    if asked == "statistics":
        return ["max", "min", "avg", "l2norm"]
    wanted = asked if isinstance(asked, list) else [asked]
    for each in wanted:
        if each not in _CATEGORIES:
            raise MsprobeError(
                f"summary_mode is {asked!r}; at level L2 it should be 'statistics', 'md5', or a list of "
                f"{list(_CATEGORIES)}"
            )
    version = tuple(int(part) for part in mindspore.__version__.split(".")[:3] if part.isdigit())
    md5 = "md5" if version <= _LAST_WITH_MD5 else "hash:md5"
    return [{"mean": "avg", "md5": md5}.get(each, each) for each in dict.fromkeys(wanted)]

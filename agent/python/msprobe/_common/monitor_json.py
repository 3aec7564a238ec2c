"""The configuration of TrainerMon: mindstudio-probe's JSON with its defaults."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError

FORMATS = ("csv", "tensorboard", "api")
OPS = ("norm", "min", "max", "zeros", "nans", "id", "mean", "shape", "dtype")
# How the names of output directories begin, and how append_output gives the first and the last of them.
TIME_FORMAT = "%b%d_%H-%M-%S"
_LONGEST = 1 << 20  # bytes of the file
_DEFAULTS: dict[str, Any] = {
    "targets": {},
    "xy_distribution": False,
    "all_xy": False,
    "forward_only": False,
    "backward_only": False,
    "wg_distribution": False,
    "mv_distribution": False,
    "param_distribution": False,
    "ur_distribution": False,
    "mg_direction": False,
    "cc_distribution": {},
    "monitor_mbs_grad": False,
    "stack_info": False,
    "print_struct": False,
    "recording_l2_features": False,
    "l2_targets": {},
    "sa_order": "s,b,h,d",
    "module_ranks": [],
    "start_step": 0,
    "collect_times": 100_000_000,
    "step_interval": 1,
    "step_count_per_record": 1,
    "format": "csv",
    "ops": [],
    "eps": 1e-8,
    "ndigits": 6,
    "squash_name": False,
    "append_output": [],
    "dynamic_on": False,
    "alert": {"rules": [], "dump": False},
}
# Accepted, and said to have no effect.
_WITHOUT_EFFECT = {
    "ur_distribution": "only the tensorboard pictures of earlier versions had it; task monitor has update_ratio",
    "mg_direction": "signs of gradients are no part of this monitor",
    "recording_l2_features": "features of attention and linear layers are not computed",
    "stack_info": "call stacks are captured by PrecisionDebugger",
    "print_struct": "msprobe-client shows the modules of a captured run",
}


def json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file holds. MsprobeError: it cannot be read, or holds something else. It waits for nobody: a named pipe
    may have been put in the file's place."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise MsprobeError(f"{path} is no regular file; it should be one that holds a JSON object")
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise MsprobeError(f"{path} is longer than {_LONGEST} bytes; it should be a monitor's configuration")
        given = json.loads(text)
    except (OSError, ValueError) as error:
        raise MsprobeError(f"{path}: {error}") from None
    except RecursionError:
        raise MsprobeError(f"{path}: its lists and objects are nested too deeply") from None
    if not isinstance(given, dict):
        raise MsprobeError(f"{path} holds a {type(given).__name__}; it should be a JSON object")
    return given


class MonitorJson:
    """One reading of the file. MsprobeError names the field, the value and what is right."""

    def __init__(self, path: str | os.PathLike[str], formats: Sequence[str] = FORMATS) -> None:
        self._formats = formats
        given = json_object(path)
        for name in given.keys() - _DEFAULTS.keys():
            log.warning(f'{path}: field "{name}" is unknown and has no effect')
        self._values = {name: self._checked(name, given.get(name, default)) for name, default in _DEFAULTS.items()}
        for name, why in _WITHOUT_EFFECT.items():
            value = self._values[name]
            if value.get("enable", False) if isinstance(value, dict) else value:
                log.warning(f"{name} has no effect: {why}")
        rules = self.alert.get("rules") or []
        if not isinstance(rules, list):
            raise MsprobeError(f"alert.rules is {rules!r}; it should be a list of rules")
        self.rules = [rule for rule in rules if self._is_rule(rule)]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def _checked(self, name: str, value: Any) -> Any:
        default = _DEFAULTS[name]
        if name == "ops":
            return self._ops(value)
        if name in ("start_step", "collect_times", "step_interval", "step_count_per_record", "ndigits"):
            least = 0 if name == "start_step" else 1
            most = {"ndigits": 20, "step_count_per_record": 1_000_000}.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least or (most and value > most):
                bound = f" to {most}" if most else ""
                raise MsprobeError(f"{name} is {value!r}; it should be an int from {least}{bound}")
        elif name == "format":
            if value not in self._formats:
                *others, last = (f'"{each}"' for each in self._formats)
                log.warning(f"format is {value!r}; it should be {', '.join(others)} or {last}: csv is written")
                return "csv"
        elif not isinstance(value, type(default)):
            raise MsprobeError(f"{name} is {value!r}; it should be a {type(default).__name__}")
        if name == "targets" and not all(isinstance(each, dict) for each in value.values()):
            raise MsprobeError(
                f'targets is {value!r}; it should be a dict of module names, each with a dict: {{"fc": {{}}}}'
            )
        if name == "module_ranks" and not all(type(each) is int for each in value):
            raise MsprobeError(f"module_ranks is {value!r}; it should be a list of ints")
        if name == "append_output" and value and not (len(value) == 2 and all(map(_is_time, value))):
            raise MsprobeError(
                f"append_output is {value!r}; it should be empty, or the first and last time: "
                '["Dec03_21-34-40", "Dec03_21-34-41"]'
            )
        return value

    @staticmethod
    def _ops(value: Any) -> list[str]:
        """Shape and dtype come always."""
        if not isinstance(value, list):
            raise MsprobeError(f"ops is {value!r}; it should be a list of {', '.join(OPS)}")
        taken = [op for op in value if op in OPS]
        for op in value:
            if op not in OPS:
                log.warning(f"ops: {op!r} is left out; it should be one of {', '.join(OPS)}")
        taken = taken or [OPS[0]]
        return taken + [op for op in ("shape", "dtype") if op not in taken]

    @staticmethod
    def _is_rule(rule: Any) -> bool:
        name = rule.get("rule_name") if isinstance(rule, dict) else None
        args = (rule.get("args") or {}) if name else {}
        if not isinstance(args, dict):
            raise MsprobeError(f'alert.rules: args is {args!r}; it should be a dict: {{"threshold": 0.5}}')
        threshold = args.get("threshold")
        if name not in ("AnomalyTurbulence", "AnomalyNan"):
            raise MsprobeError(f"alert.rules has {rule!r}; rule_name should be AnomalyTurbulence or AnomalyNan")
        if threshold is None and name == "AnomalyNan":
            return True
        if not isinstance(threshold, (int, float)) or threshold < 0:
            raise MsprobeError(f"alert.rules: threshold is {threshold!r}; it should be a number of at least 0")
        return True


def _is_time(value: Any) -> bool:
    try:
        datetime.strptime(value, TIME_FORMAT)
    except (TypeError, ValueError):
        return False
    return True


__all__ = ["FORMATS", "OPS", "TIME_FORMAT", "MonitorJson", "json_object"]

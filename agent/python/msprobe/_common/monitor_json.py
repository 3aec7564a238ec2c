"""The configuration of TrainerMon: mindstudio-probe's JSON with its defaults."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError

FORMATS = ("csv", "tensorboard", "api")
OPS = ("norm", "min", "max", "zeros", "nans", "id", "mean", "shape", "dtype")
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
    """What the file holds. MsprobeError: it cannot be read, or holds something else."""
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MsprobeError(f"{path}: {error}") from None
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
        self.rules = [rule for rule in self.alert.get("rules") or [] if self._is_rule(rule)]

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
        if name == "append_output" and len(value) not in (0, 2):
            raise MsprobeError(f"append_output is {value!r}; it should be empty, or the first and last time")
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
        threshold = (rule.get("args") or {}).get("threshold") if name else None
        if name not in ("AnomalyTurbulence", "AnomalyNan"):
            raise MsprobeError(f"alert.rules has {rule!r}; rule_name should be AnomalyTurbulence or AnomalyNan")
        if threshold is None and name == "AnomalyNan":
            return True
        if not isinstance(threshold, (int, float)) or threshold < 0:
            raise MsprobeError(f"alert.rules: threshold is {threshold!r}; it should be a number of at least 0")
        return True


__all__ = ["FORMATS", "OPS", "MonitorJson", "json_object"]

"""env: variables that decide on numbers, an NPU's beside a GPU's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msprobe_client.compat.config_check import pack
from msprobe_client.compat.config_check.sheet import ERROR, WARNING, Sheet, worst

_COLUMNS = ("bench_env_name", "cmp_env_name", "bench_value", "cmp_value", "level")


@dataclass(frozen=True, slots=True)
class _Variable:
    npu: str
    gpu: str  # "": GPUs have none
    default: Any


_VARIABLES = (
    _Variable("HCCL_DETERMINISTIC", "NCCL_DETERMINISTIC", False),
    _Variable("HCCL_ALGO", "NCCL_ALGO", "None"),
    _Variable("HCCL_INTRA_ROCE_ENABLE", "", 0),
    _Variable("HCCL_INTRA_PCIE_ENABLE", "", 1),
    _Variable("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", 0),
    _Variable("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "None"),
)


def sheet(bench: pack.Pack, cmp: pack.Pack) -> Sheet | None:
    if not (pack.ENVIRONMENT in bench and pack.ENVIRONMENT in cmp):
        return None
    ours, theirs = (side.document(pack.ENVIRONMENT) for side in (cmp, bench))
    rows = [row for variable in _VARIABLES for row in _rows(variable, theirs, ours)]
    return Sheet("env", _COLUMNS, rows, worst(row[-1] for row in rows))


def _rows(variable: _Variable, bench: dict[str, Any], cmp: dict[str, Any]) -> list[list[Any]]:
    bench_name, cmp_name = (_name(variable, side) for side in (bench, cmp))
    bench_value, cmp_value = (side.get(name, variable.default) for side, name in ((bench, bench_name), (cmp, cmp_name)))
    if not bench_name and not cmp_name:
        return []
    if not bench_name:
        return [["only cmp has this env", cmp_name, "", cmp_value, WARNING]]
    if not cmp_name:
        return [[bench_name, "only bench has this env", bench_value, "", WARNING]]
    # A pack has texts; 0 that is set is the default 0.
    differs = str(bench_value) != str(cmp_value)
    return [[bench_name, cmp_name, bench_value, cmp_value, ERROR]] if differs else []


def _name(variable: _Variable, environment: dict[str, Any]) -> str:
    """An environment that knows of ASCEND is an NPU's."""
    return variable.npu if any("ASCEND" in name for name in environment) else variable.gpu

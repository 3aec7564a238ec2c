"""mindstudio-probe's standards on rows of accuracy_checking_details_*: a device's errors, beside another's.

docs/checking.md has every standard's source and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msprobe_client.check.standards import Level, Standard
from msprobe_client.compat.accuracy_tables import BLANK, ERROR, PASS, SKIP

Row = Mapping[str, str]  # a row of the details, by column

COLUMNS = (
    "API Name",
    "小值域错误比值",
    "小值域判定结果",
    "均方根误差比值",
    "均方根误差判定结果",
    "相对误差最大值比值",
    "相对误差最大值判定结果",
    "相对误差平均值比值",
    "相对误差平均值判定结果",
    "误差均衡性比值",
    "误差均衡性判定结果",
    "inf/nan错误率",
    "inf/nan判定结果",
    "相对误差错误率",
    "相对误差判定结果",
    "绝对误差错误率",
    "绝对误差判定结果",
    "二进制一致错误率",
    "二进制一致错误率判定结果",
    "ULP误差平均值",
    "ULP误差大于阈值占比",
    "ULP误差大于阈值占比比值",
    "ULP误差判定结果",
    "双千指标",
    "双千指标判定结果",
    "比对结果",
    "比对算法",
    "Message",
)
_RATIO_FLOOR = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
_FLOAT32_FLOOR = 2.0**-14
# By level: of the largest relative error, its mean, and the root of the mean square.
_LIMITS: dict[Level, tuple[float, float, float]] = {"L0": (10, 2, 2), "L1": (5, 1.5, 1.5), "L2": (2, 1.2, 1.2)}
_SMALL_LIMIT = _BALANCE_LIMIT = 2.0
_ACCUMULATIVE_BALANCE = {"float16": 2.0**-20, "bfloat16": 2.0**-7}
_MEAN_ULPS, _SHARE_OF_FLOAT32, _SHARE_OF_OTHERS = 64, 0.05, 0.001
_THOUSANDTH = 0.999


@dataclass(frozen=True, slots=True)
class Judged:
    status: str
    cells: dict[str, float | str] = field(default_factory=dict)  # by column


def judge(target: Row, beside: Row, standard: Standard) -> Judged:
    """beside: the same output of the other device."""
    dtype = target["DEVICE Dtype"].strip().removeprefix("torch.")
    if not dtype or target["Status"] == SKIP or not standard.name or target["Shape"].strip() == "(0,)":
        return Judged(SKIP, {"Message": target["Message"]})
    # Tables of mindstudio-probe 26 have the columns of the benchmark alone.
    name = standard.name if _has(target, standard.name) else "benchmark"
    if not _has(target, name):
        return Judged(target["Status"], {"Message": target["Message"]})
    judged = _STANDARDS[name](target, beside, dtype, standard.level)
    return Judged(judged.status, {**judged.cells, "比对算法": _ALGORITHMS[name]})


_NEEDED = {
    "binary": "二进制一致错误率",
    "absolute_threshold": "相对误差错误率",
    "accumulative": "相对误差错误率",
    "ulp": "ULP误差大于阈值占比",
    "double_thousandth": "双千指标",
    "benchmark": "均方根误差",
}
_ALGORITHMS = {
    "binary": "二进制一致法",
    "absolute_threshold": "绝对阈值法",
    "accumulative": "累积误差比对法",
    "ulp": "ULP误差比对法",
    "double_thousandth": "双千指标法",
    "benchmark": "标杆比对法",
}


def _has(row: Row, standard: str) -> bool:
    return bool(row[_NEEDED[standard]].strip())


def number(row: Row, column: str) -> float:
    """0 where the cell is blank. ValueError: it is no number."""
    text = row[column].strip()
    return float(text) if text else 0.0


def _held(passes: bool) -> str:
    return PASS if passes else ERROR


def _worst(*statuses: str) -> str:
    return ERROR if ERROR in statuses else PASS


def _zero_rates(target: Row, rates: Mapping[str, str]) -> dict[str, float | str]:
    """Rates of elements over a limit, none of which may be, each with its verdict's column."""
    cells: dict[str, float | str] = {}
    for column, verdict in rates.items():
        cells[column] = number(target, column)
        cells[verdict] = _held(cells[column] == 0)
    return cells


def _binary(target: Row, beside: Row, dtype: str, level: Level) -> Judged:
    cells = _zero_rates(target, {"二进制一致错误率": "二进制一致错误率判定结果"})
    return Judged(str(cells["二进制一致错误率判定结果"]), cells)


_RATES = {
    "inf/nan错误率": "inf/nan判定结果",
    "相对误差错误率": "相对误差判定结果",
    "绝对误差错误率": "绝对误差判定结果",
}


def _absolute_threshold(target: Row, beside: Row, dtype: str, level: Level) -> Judged:
    cells = _zero_rates(target, _RATES)
    return Judged(_worst(*(str(cells[verdict]) for verdict in _RATES.values())), cells)


def _accumulative(target: Row, beside: Row, dtype: str, level: Level) -> Judged:
    rates = _absolute_threshold(target, beside, dtype, level)
    balance = number(target, "误差均衡性")
    status = _held(balance <= _ACCUMULATIVE_BALANCE.get(dtype, _FLOAT32_FLOOR))
    cells = {**rates.cells, "误差均衡性比值": balance, "误差均衡性判定结果": status}
    return Judged(_worst(rates.status, status), cells)


def _double_thousandth(target: Row, beside: Row, dtype: str, level: Level) -> Judged:
    share = number(target, "双千指标")
    status = _held(share >= _THOUSANDTH)
    return Judged(status, {"双千指标": share, "双千指标判定结果": status})


def _ulp(target: Row, beside: Row, dtype: str, level: Level) -> Judged:
    mean, share = number(target, "ULP误差平均值"), number(target, "ULP误差大于阈值占比")
    ratio, alike = _ratio(share, number(beside, "ULP误差大于阈值占比"), dtype)
    limit = _SHARE_OF_FLOAT32 if dtype == "float32" else _SHARE_OF_OTHERS
    passes = share < limit or (dtype == "float32" and mean < _MEAN_ULPS)
    if not dtype.startswith("float8"):
        passes = alike and (passes or ratio < 1)
    status = _held(passes)
    cells: dict[str, float | str] = {
        "ULP误差平均值": mean,
        "ULP误差大于阈值占比": share,
        "ULP误差大于阈值占比比值": ratio,
        "ULP误差判定结果": status,
    }
    return Judged(status, cells)


def _benchmark(target: Row, beside: Row, dtype: str, level: Level) -> Judged:
    """Ratios of errors. That of the balance is shown, and does not count."""
    max_rel, mean_rel, rms = _LIMITS[level]
    cells: dict[str, float | str] = {}
    counted = []
    for column, shown, verdict, limit in (
        ("小值域错误占比", "小值域错误比值", "小值域判定结果", _SMALL_LIMIT),
        ("均方根误差", "均方根误差比值", "均方根误差判定结果", rms),
        ("相对误差最大值", "相对误差最大值比值", "相对误差最大值判定结果", max_rel),
        ("相对误差平均值", "相对误差平均值比值", "相对误差平均值判定结果", mean_rel),
        ("误差均衡性", "误差均衡性比值", "误差均衡性判定结果", _BALANCE_LIMIT),
    ):
        ratio, alike = _ratio(number(target, column), number(beside, column), dtype)
        cells[shown] = ratio
        cells[verdict] = _held(alike and not ratio > limit)
        counted.append((column, str(cells[verdict]), f"{shown} {ratio:.6g} > {limit:g}"))
    failed = [said for column, status, said in counted if status == ERROR and column != "误差均衡性"]
    return Judged(_held(not failed), {**cells, "Message": "; ".join(failed)})


def _ratio(mine: float, theirs: float, dtype: str) -> tuple[float, bool]:
    """The ratio; NaN where a side is not finite, and whether both then are the same."""
    if math.isfinite(mine) and math.isfinite(theirs):
        return abs(mine) / max(abs(theirs), _RATIO_FLOOR.get(dtype, _FLOAT32_FLOOR)), True
    return math.nan, mine == theirs or (math.isnan(mine) and math.isnan(theirs))


_STANDARDS: dict[str, Callable[[Row, Row, str, Level], Judged]] = {
    "binary": _binary,
    "absolute_threshold": _absolute_threshold,
    "accumulative": _accumulative,
    "ulp": _ulp,
    "double_thousandth": _double_thousandth,
    "benchmark": _benchmark,
}


def cells_of(name: str, judged: Judged) -> list[str]:
    """A row of api_precision_compare_details_*."""
    cells = {**judged.cells, "API Name": name, "比对结果": judged.status}
    found = (cells.get(column, BLANK) for column in COLUMNS)
    return [f"{cell:.14f}" if isinstance(cell, float) else cell for cell in found]

"""Rows of a comparison as they are shown."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from msprobe_client.comparison import HARMLESS, VERDICTS, ComparedTensor, RollUp, UnpairedStep
from msprobe_client.output import Column, Mark, Row, show

METRICS = (
    "elements",
    "compared",
    "different",
    "over_tolerance",
    "nan_mismatches",
    "inf_mismatches",
    "inf_sign_mismatches",
    "first_non_finite_mismatch",
    "max_abs",
    "mean_abs",
    "rms_abs",
    "max_rel",
    "mean_rel",
    "rms_rel",
    "share_under_1e2",
    "share_under_5e3",
    "share_under_1e3",
    "share_under_1e4",
    "cosine",
    "euclidean",
    "ulp_max",
    "ulp_mean",
    "ulp_share_over",
    "abs_p50",
    "abs_p90",
    "abs_p99",
    "abs_p999",
    "worst_index",
    "worst_target",
    "worst_golden",
)


_COUNTS = frozenset(METRICS[:8]) | {"worst_index"}


def times(value: float) -> str:
    return "" if value == 0 else f"{value:.3g}x"


TENSOR_COLUMNS = (
    Column("verdict", "VERDICT", kind="text"),
    Column("name", "NAME", kind="text"),
    Column("golden_name", "", in_table=False, kind="text"),
    Column("step", "STEP", right=True, kind="int"),
    Column("rank", "RANK", kind="text"),
    Column("token", "", in_table=False, kind="int"),
    Column("module", "", in_table=False, kind="text"),
    Column("basis", "BY", kind="text"),
    Column("excess", "x TOLERANCE", times, right=True, kind="float"),
    Column("statistic", "STATISTIC", kind="text"),
    Column("target_value", "TARGET", show.value, right=True, kind="float"),
    Column("golden_value", "GOLDEN", show.value, right=True, kind="float"),
    Column("target_dtype", "DTYPE", kind="text"),
    Column("golden_dtype", "", in_table=False, kind="text"),
    Column("target_shape", "SHAPE", kind="text"),
    Column("golden_shape", "", in_table=False, kind="text"),
    *(Column(metric, "", in_table=False, kind="int" if metric in _COUNTS else "float") for metric in METRICS),
    Column("layout", "LAYOUT", in_table=False, kind="text"),
    Column("message", "MESSAGE", kind="text"),
)
ROLL_UP_COLUMNS = (
    Column("level", "LEVEL"),
    Column("step", "STEP", right=True, kind="int"),
    Column("rank", "RANK", kind="text"),
    Column("name", "NAME"),
    Column("rows", "ROWS", right=True),
    Column("differences", "DIFFERENT", right=True),
    Column("worst_excess", "WORST", times, right=True, kind="float"),
    Column("worst", "WORST TENSOR"),
    Column("first_difference", "FIRST DIFFERENCE"),
)


def tensor_row(item: ComparedTensor) -> dict[str, Any]:
    measured = item.basis in ("statistics", "content") and item.excess
    target, golden = item.target_scalar, item.golden_scalar
    return {
        "verdict": item.verdict,
        "name": item.name,
        "golden_name": item.golden_name or item.name,
        "step": item.step,
        "rank": item.rank,
        "token": item.token,
        "module": item.module,
        "basis": item.basis,
        "excess": item.excess,
        "statistic": item.statistic,
        "target_value": target.value if target else item.target_value if measured and not golden else None,
        "golden_value": golden.value if golden else item.golden_value if measured and not target else None,
        "target_dtype": target.type if target else item.target_dtype,
        "golden_dtype": golden.type if golden else item.golden_dtype,
        "target_shape": item.target_shape,
        "golden_shape": item.golden_shape,
        **{metric: item.metrics.get(metric) for metric in METRICS},
        "layout": item.layout,
        "message": item.message,
    }


def roll_up_row(item: RollUp) -> dict[str, Any]:
    return {
        "level": item.level,
        "name": item.name,
        "step": item.step,
        "rank": item.rank,
        "rows": item.rows,
        "differences": item.differences,
        "verdicts": item.verdicts,
        "worst_excess": item.worst_excess,
        "worst": item.worst,
        "first_difference": item.first_difference,
    }


def mark_tensor(row: Row) -> Mark:
    if row["verdict"] not in HARMLESS:
        return "bad"
    return "" if row["verdict"] == "equal" else "doubtful"


def mark_roll_up(row: Row) -> Mark:
    return "bad" if row["differences"] else ""


def tensor_columns(*, layouts: bool) -> list[Column]:
    """layouts: a table also shows how shards were joined."""
    return [
        replace(column, in_table=True) if layouts and column.name == "layout" else column for column in TENSOR_COLUMNS
    ]


def worst_first(items: Iterable[ComparedTensor], max_rows: int) -> Iterator[ComparedTensor]:
    """The most significant of all steps and ranks; 0: all of them."""
    numbered = zip(items, itertools.count(), strict=False)

    def significance(numbered_item: tuple[ComparedTensor, int]) -> tuple[int, float, int]:
        item, place = numbered_item
        return VERDICTS.index(item.verdict), item.excess, -place

    found = (
        heapq.nlargest(max_rows, numbered, key=significance)
        if max_rows
        else sorted(numbered, key=significance, reverse=True)
    )
    return (item for item, _ in found)


def summary(total: RollUp, lonely: list[UnpairedStep], *, shown: int | None) -> list[str]:
    """Lines after a table. shown: its number of rows, if there could be more."""
    counted = ", ".join(f"{count} {verdict}" for verdict, count in total.verdicts.items())
    lines = [f"{total.rows} compared: {counted or 'nothing'}"]
    if shown is not None and total.differences > shown:
        lines.append(f"the worst {shown} are shown; --limit 0 shows all")
    if total.first_difference:
        lines.append(f"first difference in order of execution: {total.first_difference}")
    if total.worst:
        lines.append(f"worst: {total.worst} ({times(total.worst_excess)} the tolerance)")
    lines += map(str, lonely)
    if total.rows and not total.differences and not lonely:
        unknown = total.verdicts.get("unknown", 0)
        if unknown == total.rows:
            lines.append("nothing could be compared: every verdict is unknown")
        else:
            lines.append("equal within tolerance" + (f", as far as known: {unknown} are unknown" if unknown else ""))
    return lines


def show_verdicts(total: RollUp) -> None:
    """On a terminal: rows counted by verdict, worst first."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    table.add_column()
    for verdict, count in reversed(list(total.verdicts.items())):
        style = "red" if verdict not in HARMLESS else "green" if verdict == "equal" else "yellow"
        bar = "\u2588" * max(1, round(40 * count / max(1, total.rows)))
        table.add_row(str(count), f"[{style}]{verdict}[/]", f"[{style}]{bar}[/]")
    Console().print(table)

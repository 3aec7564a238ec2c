"""Options that select tensors by name, type, shape and statistics."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.mixins import mixin

if TYPE_CHECKING:
    from msprobe_client.tensors import FoundTensor, Predicate


class StatisticName(str, Enum):
    """The same as msprobe_client.tensors.STATISTICS."""

    max = "max"
    min = "min"
    mean = "mean"
    norm = "norm"
    variance = "variance"
    std = "std"
    nan = "nan"
    inf = "inf"
    zero = "zero"
    elements = "elements"
    zero_share = "zero_share"
    rms = "rms"
    abs_max = "abs_max"
    range = "range"


@mixin
class TensorFilters:
    regex: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--regex", help="Searched in full names of tensors", show_default=False),
    ] = None
    dtype: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--dtype", help="float32, bfloat16, ...; several times", show_default=False),
    ] = None
    shape: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--shape", help="'[2, *, 16]': * is any size, ... any number of dimensions", show_default=False),
    ] = None
    where: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--where", help="'max > 1e4', 'nan > 0'; several times: all must hold", show_default=False),
    ] = None
    module: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--module", help="This module or one below it: model.layers.0", show_default=False),
    ] = None
    stack_text: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--stack-text", help="A text in a line of the call's stack", show_default=False),
    ] = None

    def given(self) -> dict[str, Any]:
        """Client.find's arguments for the filters that were given. Empty: none was."""
        filters = {
            "regex": self.regex,
            "dtypes": self.dtype,
            "shape": self.shape,
            "where": [predicate(text) for text in self.where or []],
            "module": self.module,
            "stack": self.stack_text,
        }
        return {name: value for name, value in filters.items() if value}


_PREDICATE = re.compile(r"\s*(?P<statistic>[a-z_]+)\s*(?P<comparison><=|>=|==|!=|=|<|>)\s*(?P<value>\S+)\s*")


def predicate(text: str) -> Predicate:
    """('max', '>', 10000.0) of 'max > 1e4'"""
    match = _PREDICATE.fullmatch(text)
    names = [name.value for name in StatisticName]
    try:
        value = float(match["value"]) if match else None
    except ValueError:
        value = None
    if match is None or value is None or match["statistic"] not in names:
        raise typer.BadParameter(
            f"{text!r} is not understood; write STATISTIC COMPARISON NUMBER, as in 'max > 1e4'; "
            f"statistics are {', '.join(names)}",
            param_hint="--where",
        )
    comparison = "==" if match["comparison"] == "=" else match["comparison"]
    return match["statistic"], comparison, value  # type: ignore[return-value]


def found_columns() -> Any:
    from msprobe_client.output import Column, show

    number = show.number
    return (
        Column("name", "NAME", kind="text"),
        Column("step", "STEP", right=True, kind="int"),
        Column("rank", "RANK", kind="text"),
        Column("token", "", in_table=False, kind="int"),
        Column("record", "", in_table=False, kind="text"),
        Column("module", "", in_table=False, kind="text"),
        Column("parent", "", in_table=False, kind="text"),
        Column("dtype", "DTYPE", kind="text"),
        Column("shape", "SHAPE", kind="text"),
        Column("max", "MAX", number, right=True, kind="float"),
        Column("min", "MIN", number, right=True, kind="float"),
        Column("mean", "MEAN", number, right=True, kind="float"),
        Column("norm", "NORM", number, right=True, kind="float"),
        Column("variance", "", in_table=False, kind="float"),
        Column("nan_count", "NaN", right=True, kind="int"),
        Column("inf_count", "Inf", right=True, kind="int"),
        Column("zero_count", "", in_table=False, kind="int"),
        Column("checksum", "CHECKSUM", kind="text"),
        Column("content", "CONTENT", lambda there: "yes" if there else ""),
    )


def found_row(item: FoundTensor) -> dict[str, Any]:
    return {
        "name": item.name,
        "step": item.step,
        "rank": item.rank,
        "token": item.token,
        "record": item.op,
        "module": item.module,
        "parent": item.parent,
        "dtype": item.dtype,
        "shape": item.shape,
        "max": item.max,
        "min": item.min,
        "mean": item.mean,
        "norm": item.norm,
        "variance": item.variance,
        "nan_count": item.nan_count,
        "inf_count": item.inf_count,
        "zero_count": item.zero_count,
        "checksum": item.checksum,
        "content": item.has_content,
    }

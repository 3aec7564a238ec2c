"""msprobe-client series RUN"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, Ranks, RunName, Selection, Server, Steps, common

if TYPE_CHECKING:
    from msprobe_client.monitor_client import ScalarSeries

EXAMPLES = (
    "msprobe-client series tuesday --name 'loss*'",
    "msprobe-client series tuesday --format tensorboard --output events",
)


class SeriesFormat(str, Enum):
    """Those of every command, and TensorBoard's."""

    table = "table"
    json = "json"
    csv = "csv"
    csv_safe = "csv-safe"
    xlsx = "xlsx"
    parquet = "parquet"
    tensorboard = "tensorboard"


def run(
    context: typer.Context,
    run: RunName,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="GLOB", help="Names of series, a shell pattern: 'train/*'"),
    ] = None,
    step: Steps = None,
    rank: Ranks = None,
    points: Annotated[
        int, typer.Option("--points", min=0, help="At most so many of each series, with its extremes; 0: all")
    ] = 0,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--output", "-o", metavar="PATH", help="A file; with --format tensorboard a directory of event files"
        ),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: Annotated[
        Optional[SeriesFormat],  # noqa: UP045
        typer.Option("--format", help="table (default): one line a series; the others: its points"),
    ] = None,
) -> None:
    """Show scalars of msprobe.log, debugger.log and msprobe.watch, joined with tensors by run, rank and step."""
    options = common(context, server, data_dir)
    chosen = output_format or (SeriesFormat(options.format.value) if options.format else SeriesFormat.table)
    selection = Selection(step, rank)
    if len(selection.ranges) > 1:
        raise typer.BadParameter("one step or one range of steps", param_hint="--step")
    if chosen is SeriesFormat.tensorboard and output is None:
        raise typer.BadParameter("--format tensorboard writes a directory; name it", param_hint="--output")
    if 0 < points < 3:
        raise typer.BadParameter(f"{points} is too few; 0 or at least 3", param_hint="--points")
    with options.connect() as client:
        series = client.monitor.series(
            run,
            name,
            ranks=selection.ranks,
            steps=selection.ranges[0] if selection.ranges else None,
            max_points=points,
        )
        if chosen is SeriesFormat.tensorboard:
            from msprobe_client.output import tensorboard_events

            assert output is not None
            tensorboard_events.write(series, output)
        else:
            _write(series, chosen, output)


def _write(series: Iterator[ScalarSeries], chosen: SeriesFormat, output: Path | None) -> None:
    from msprobe_client.output import Column, Ending, Format, show, write

    found = 0

    def counted() -> Iterator[ScalarSeries]:
        nonlocal found
        for one in series:
            found += 1
            yield one

    def ending() -> Ending:
        return Ending(
            notes=[]
            if found
            else ["no such scalars; a program sends them by msprobe.log, PrecisionDebugger.log or msprobe.watch"]
        )

    number = show.number
    if chosen is SeriesFormat.table:
        columns = [
            Column("name", "NAME"),
            Column("rank", "RANK"),
            Column("points", "POINTS", right=True),
            Column("first_step", "FIRST STEP", right=True),
            Column("last_step", "LAST STEP", right=True),
            Column("first", "FIRST", number, right=True),
            Column("last", "LAST", number, right=True),
            Column("least", "LEAST", number, right=True),
            Column("greatest", "GREATEST", number, right=True),
        ]
        write(Format.table, columns, map(_summary, counted()), output, ending=ending)
        return
    columns = [
        Column("name", "NAME", kind="text"),
        Column("rank", "RANK", kind="text"),
        Column("step", "STEP", right=True, kind="int"),
        Column("value", "VALUE", number, right=True, kind="float"),
    ]
    rows: Iterator[dict[str, Any]]
    if chosen is SeriesFormat.json:
        rows = (
            {"name": one.name, "rank": one.rank, "step": list(one.steps), "value": list(one.values)}
            for one in counted()
        )
    else:
        rows = (
            {"name": one.name, "rank": one.rank, "step": step, "value": value}
            for one in counted()
            for step, value in zip(one.steps, one.values, strict=True)
        )
    write(Format(chosen.value), columns, rows, output, ending=ending)


def _summary(series: ScalarSeries) -> dict[str, Any]:
    numbers = [value for value in series.values if not math.isnan(value)] or list(series.values)
    return {
        "name": series.name,
        "rank": series.rank,
        "points": series.points,
        "first_step": series.steps[0],
        "last_step": series.steps[-1],
        "first": series.values[0],
        "last": series.values[-1],
        "least": min(numbers),
        "greatest": max(numbers),
    }

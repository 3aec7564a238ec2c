"""msprobe-client trend SOURCE NAME"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, Selection, Server, Steps, common
from msprobe_client.commands.sides import SourceOf, connected
from msprobe_client.commands.tensor_filters import StatisticName

if TYPE_CHECKING:
    from msprobe_client.tensors import TrendSeries

_PICTURES = (".png", ".svg", ".pdf")

EXAMPLES = (
    "msprobe-client trend tuesday 'Functional.*.output.0' --statistic max --plot",
    "msprobe-client trend tuesday Functional.linear.0.forward.output.0 --diff monday --format csv",
)


def run(
    context: typer.Context,
    source: SourceOf,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Full names of tensors, a shell pattern: 'Functional.linear.*.output.0'"),
    ],
    statistic: Annotated[
        Optional[list[StatisticName]],  # noqa: UP045
        typer.Option("--statistic", "-s", help="Several times; default: norm", show_default=False),
    ] = None,
    diff: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--diff", metavar="SOURCE", help="Beside each value that of this run or dump, and the difference"),
    ] = None,
    step: Steps = None,
    rank: Ranks = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Series; 0: 1000")] = 0,
    plot: Annotated[bool, typer.Option("--plot", help="Draw in the terminal instead of a table")] = False,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--output", "-o", metavar="FILE", help="FILE.png, .svg or .pdf: a picture; else what --format says"
        ),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Show statistics of tensors over steps: a table, json, csv, a plot in the terminal, a picture."""
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    picture = output is not None and output.suffix.lower() in _PICTURES
    if plot and (output is not None or options.format is not None):
        raise typer.BadParameter("--plot draws in the terminal; leave out --output and --format")
    if picture and options.format is not None:
        raise typer.BadParameter(f"{output} is a picture; leave out --format, or name another file")
    with connected(options, source, *([diff] if diff else [])) as client:
        from msprobe_client.errors import NotFound
        from msprobe_client.output import progress

        with progress.bar("trend", "files") as advance:
            series = client.trend(
                source,
                name,
                golden=diff,
                statistics=[item.value for item in statistic or [StatisticName.norm]],
                steps=selection.ranges,
                ranks=selection.ranks,
                limit=limit,
                progress=advance,
            )
            if plot or picture:
                found = list(series)
            else:
                found = []
                first = next(series, None)
                if first is not None:
                    found = [first]
                    _write(first, series, options.format, output, diff is not None)
        if not found:
            raise NotFound(f"no tensor of {source} is called {name} there; `find {source} --name '*'` lists what is")
    if plot or picture:
        from msprobe_client.output import plot as drawing

        if all(point.value is None and point.golden is None for one in found for point in one.points):
            asked = ", ".join(dict.fromkeys(str(one.statistic) for one in found))
            raise NotFound(f"nothing to draw: {asked} was captured in none of these steps")
        if picture:
            assert output is not None
            drawing.draw(found, output)
        else:
            drawing.show(found, sys.stdout)


def _write(
    first: TrendSeries,
    rest: Iterator[TrendSeries],
    chosen: Any,
    output: Path | None,
    paired: bool,
) -> None:
    from msprobe_client.output import Column, Format, show, write

    number = show.number
    columns = [
        Column("name", "NAME", kind="text"),
        Column("rank", "RANK", kind="text"),
        Column("statistic", "STATISTIC", kind="text"),
        Column("dtype", "", in_table=False, kind="text"),
        Column("shape", "", in_table=False, kind="text"),
        Column("step", "STEP", right=True, kind="int"),
        Column("token", "TOKEN", right=True, kind="int"),
        Column("value", "VALUE", number, right=True, kind="float"),
    ]
    if paired:
        columns.append(Column("golden", "GOLDEN", number, right=True, kind="float"))
        columns.append(Column("difference", "DIFFERENCE", number, right=True, kind="float"))
    chosen = chosen or Format.table

    def series() -> Iterator[TrendSeries]:
        yield first
        yield from rest

    if chosen == Format.json:
        rows = (_series_row(one, paired) for one in series())
    else:
        rows = (row for one in series() for row in _point_rows(one))
    write(chosen, columns, rows, output)


def _point_rows(series: TrendSeries) -> Iterator[dict[str, Any]]:
    for point in series.points:
        value, golden = point.value, point.golden
        yield {
            "name": series.name,
            "rank": series.rank,
            "statistic": series.statistic,
            "dtype": series.dtype,
            "shape": series.shape,
            "step": point.step,
            "token": point.token,
            "value": value,
            "golden": golden,
            "difference": None if value is None or golden is None else value - golden,
        }


def _series_row(series: TrendSeries, paired: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": series.name,
        "rank": series.rank,
        "statistic": series.statistic,
        "dtype": series.dtype,
        "shape": series.shape,
        "step": [point.step for point in series.points],
        "token": [point.token for point in series.points],
        "value": [point.value for point in series.points],
    }
    if paired:
        row["golden"] = [point.golden for point in series.points]
    return row

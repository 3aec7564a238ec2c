"""msprobe-client overflow SOURCE"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, Selection, Server, Steps, common
from msprobe_client.commands.sides import NameGlob, SourceOf, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.comparison import Overflow

EXAMPLES = (
    "msprobe-client overflow tuesday --follow",
    "msprobe-client overflow dump_a --step 3 --anomalies anomalies",
)


def run(
    context: typer.Context,
    source: SourceOf,
    step: Steps = None,
    rank: Ranks = None,
    name: NameGlob = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Origins of each step and rank; 0: all")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Of a run: go on as steps complete, until the run has ended")
    ] = False,
    anomalies: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--anomalies", metavar="DIR", help="Write mindstudio-probe's overflow_check's file there, too"),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Find where NaN and infinity come from. Ends with 0 where they begin nowhere, else with 1."""
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    first: list[Overflow] = []
    every: list[Overflow] = []
    noted: list[str] = []
    with connected(options, source) as client:
        from msprobe_client.output import Column, Ending, Format, progress, write

        columns = (
            Column("origin", "ORIGIN", width=11),
            Column("tensor", "TENSOR", width=60),
            Column("op", "", in_table=False),
            Column("step", "STEP", right=True),
            Column("rank", "RANK", width=6),
            Column("token", "", in_table=False),
            Column("nan", "NaN", _mark),
            Column("infinity", "Inf", _mark),
            Column("dtype", "DTYPE", width=14),
            Column("shape", "SHAPE", width=16),
            Column("module", "MODULE"),
        )
        steps = 0  # of ranks, that were read
        with progress.bar("overflow", "files") as advance:

            def count(done: int, total: int) -> None:
                nonlocal steps
                steps = done
                advance(done, total)

            found = client.overflow(
                source,
                steps=selection.ranges,
                ranks=selection.ranks,
                name=name,
                limit=limit,
                follow=follow,
                with_entries=anomalies is not None,
                note=noted.append,
                progress=count,
            )

            def rows() -> Iterator[dict[str, Any]]:
                for item in found:
                    if item.first:
                        first.append(item)
                    else:
                        every.append(item)
                        yield _row(item)

            def ending() -> Ending:
                origin = next(iter(every if follow else first), None)
                what = "everything is finite"
                if noted or name is not None:
                    what = "NaN or infinity began nowhere that was captured"
                if name is not None:
                    what += f" among what is called {name}"
                counted = f"{steps} step{'' if steps == 1 else 's'}, those of each rank counted"
                notes = [] if every else [f"{what} in {counted}"]
                notes += noted
                if anomalies is not None:
                    notes += _write_anomalies(every, anomalies)
                return Ending(
                    notes=notes,
                    facts={"first": None if origin is None else _row(origin), "steps": steps},
                    shown=[] if origin is None else _told(origin),
                )

            write(options.format or Format.table, columns, rows(), live=follow, ending=ending)
    if every:
        raise typer.Exit(EXIT_DIFFERS)


def _told(origin: Overflow) -> list[str]:
    from msprobe_client.output import show

    return [f"first: {origin}", *(f"  {line}" for line in show.stack(origin.stack))]


def _write_anomalies(found: list[Overflow], output: Path) -> list[str]:
    """Writes the file, and gives a line that names it."""
    from msprobe_client.compat.overflow_command import first_of_each_rank, write_anomalies

    path = write_anomalies(first_of_each_rank(found), output)
    return [] if path is None else [f"The analyze result is saved in: {path}"]


def _row(item: Overflow) -> dict[str, Any]:
    return {
        "op": item.op,
        "module": item.module,
        "step": item.step,
        "rank": item.rank,
        "token": item.token,
        "origin": item.origin,
        "tensor": item.tensor,
        "dtype": item.dtype,
        "shape": item.shape,
        "nan": item.nan,
        "infinity": item.infinity,
        "stack": list(item.stack),
    }


def _mark(value: bool) -> str:
    return "yes" if value else ""

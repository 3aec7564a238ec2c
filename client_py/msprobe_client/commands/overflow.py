"""msprobe-client overflow SOURCE"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, Selection, Server, Steps, common
from msprobe_client.commands.sides import NameGlob, SourceOf, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.comparison import Overflow


def run(
    context: typer.Context,
    source: SourceOf,
    step: Steps = None,
    rank: Ranks = None,
    name: NameGlob = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Origins of each step and rank; 0: all")] = 20,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Find where NaN and infinity come from. Ends with 0 where everything is finite, with 1 where not."""
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    first: list[Overflow] = []
    with connected(options, source) as client:
        from msprobe_client.output import Column, Format, progress, write

        columns = (
            Column("origin", "ORIGIN"),
            Column("tensor", "TENSOR"),
            Column("op", "", in_table=False),
            Column("step", "STEP", right=True),
            Column("rank", "RANK"),
            Column("token", "", in_table=False),
            Column("nan", "NaN", _mark),
            Column("infinity", "Inf", _mark),
            Column("dtype", "DTYPE"),
            Column("shape", "SHAPE"),
            Column("module", "MODULE"),
        )
        with progress.bar("overflow", "files") as advance:
            found = client.overflow(
                source, steps=selection.ranges, ranks=selection.ranks, name=name, limit=limit, progress=advance
            )

            def rows() -> Iterator[dict[str, Any]]:
                for item in found:
                    if item.first:
                        first.append(item)
                    else:
                        yield _row(item)

            chosen = options.format or Format.table
            write(chosen, columns, rows())
    if chosen == Format.table:
        for item in first:
            print(f"first: {item}")
            for line in item.stack[:8]:
                print("  " + " ".join(line.split()))
        if not first:
            print("everything is finite")
    if first:
        raise typer.Exit(EXIT_DIFFERS)


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

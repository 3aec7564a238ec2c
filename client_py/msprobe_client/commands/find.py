"""msprobe-client find SOURCE"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from msprobe_client.commands.options import Connection, Ranks, Selection, Steps
from msprobe_client.commands.sides import SourceOf, connected
from msprobe_client.commands.tensor_filters import TensorFilters, found_columns, found_row

EXAMPLES = (
    "msprobe-client find tuesday --where 'max > 1e4' --dtype float32",
    "msprobe-client find dump_a --shape '[2, ...]' --name '*.output.0'",
)


def run(
    context: typer.Context,
    source: SourceOf,
    *,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="GLOB", help="Shell pattern over full names of tensors or of their records"),
    ] = None,
    filters: TensorFilters,
    step: Steps = None,
    rank: Ranks = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Tensors; 0: all")] = 0,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE", help="A file instead of stdout"),
    ] = None,
    connection: Connection,
) -> None:
    """Find tensors by name, dtype, shape, module, stack and what their statistics say."""
    options = connection.common(context)
    selection = Selection(step, rank)
    given = filters.given()
    with connected(options, source) as client:
        from msprobe_client.output import Format, progress, write

        with progress.bar("find", "files") as advance:
            found = client.find(
                source,
                name=name,
                **given,
                steps=selection.ranges,
                ranks=selection.ranks,
                limit=limit,
                progress=advance,
            )
            write(options.format or Format.table, found_columns(), map(found_row, found), output)

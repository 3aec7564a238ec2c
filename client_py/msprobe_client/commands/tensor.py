"""msprobe-client tensor RUN NAME -o FILE"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from msprobe_client.commands.options import DataDir, RunName, Selection, Server, common


def run(
    context: typer.Context,
    run: RunName,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="As `records` shows it: Functional.linear.0.forward.input.1"),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="FILE.pt or FILE.npy", show_default=False)
    ],
    step: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--step", min=0, help="Needed where several steps hold the name", show_default=False),
    ] = None,
    rank: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--rank", metavar="RANK", help="Needed where several ranks hold the name", show_default=False),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
) -> None:
    """Write one stored tensor to a file."""
    options = common(context, server, data_dir)
    ranks = Selection(None, [rank] if rank is not None else None).ranks
    if output.suffix not in (".pt", ".npy"):
        raise typer.BadParameter(f"{output}: a tensor is written as .pt or .npy", param_hint="--output")
    for suffix in (".pt", ".npy"):
        name = name.removesuffix(suffix)  # a file's name does as well
    from msprobe_client.output import progress

    with options.connect() as client, progress.bar(name, "bytes") as advance:
        written = client.tensor(run, name, output, step=step, rank=ranks[0] if ranks else None, progress=advance)
    typer.echo(f"{written}")

"""msprobe-client delete RUN"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common

EXAMPLES = ("msprobe-client delete wednesday --yes",)


def run(
    context: typer.Context,
    run: RunName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at a terminal")] = False,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Delete a run and the tensor content that only it refers to."""
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, show, write

    with options.connect() as client:
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            typer.confirm(f"Delete the run {run} for good?", abort=True, err=True)
        report = client.delete(run)
    columns = (
        Column("run", "RUN"),
        Column("row_bytes", "ROWS FREED", show.size, right=True),
        Column("payload_bytes", "TENSOR CONTENT FREED", show.size, right=True),
    )
    row = {"run": run, "row_bytes": report.row_bytes, "payload_bytes": report.payload_bytes}
    write(options.format or Format.table, columns, [row])

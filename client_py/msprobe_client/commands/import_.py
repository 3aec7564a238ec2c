"""msprobe-client import DIR --run NAME"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Server, common

EXAMPLES = ("msprobe-client import dump --run wednesday",)


def run(
    context: typer.Context,
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A dump_path, a step{N} in it, or a rank{R} in that", show_default=False),
    ],
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="Name of the run it becomes", show_default=False)],
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Store a dump directory, ours or mindstudio-probe's, as a run."""
    options = common(context, server, data_dir, output_format)
    if not run:
        raise typer.BadParameter("the name is empty", param_hint="--run")
    from msprobe_client import dump_files
    from msprobe_client.output import Column, Format, progress, warn, write

    dump_files.find(directory)  # before a data directory is made in vain
    with options.connect(create=True) as client, progress.bar(f"import {directory}", "bytes") as advance:
        report = client.import_dump(directory, run, progress=advance)
    for warning in report.warnings:
        warn(f"warning: {warning}", str(context.find_root().info_name))
    columns = (
        Column("run", "RUN"),
        Column("steps", "STEPS", right=True),
        Column("records", "RECORDS", right=True),
        Column("payloads", "TENSOR FILES", right=True),
    )
    row = {"run": run, "steps": report.steps, "records": report.records, "payloads": report.payloads}
    write(options.format or Format.table, columns, [row])

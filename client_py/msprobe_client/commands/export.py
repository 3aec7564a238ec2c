"""msprobe-client export RUN --output DIR"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, RunName, Selection, Server, Steps, common

EXAMPLES = (
    "msprobe-client export tuesday --output dump",
    "msprobe-client export tuesday --output part --step 3-5 --rank 0 --no-tensors",
)


def run(
    context: typer.Context,
    run: RunName,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="step{N}/rank{R} appear in it", show_default=False)
    ],
    step: Steps = None,
    rank: Ranks = None,
    extended: Annotated[
        bool, typer.Option("--extended", help="Add variance, counts and finite-only statistics to dump.json")
    ] = False,
    strict_json: Annotated[
        bool, typer.Option("--strict-json", "--strict_json", help="Write null for NaN and Infinity")
    ] = False,
    no_tensors: Annotated[
        bool, typer.Option("--no-tensors", "--no_tensors", help="Leave dump_tensor_data out")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace step{N}/rank{R} that exist already")] = False,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Write dump directories that mindstudio-probe reads. Each appears whole."""
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    from msprobe_client.output import Column, Format, progress, show, write

    with options.connect() as client, progress.bar(f"export {run}", "files") as advance:
        chosen = selection.of(run, client.steps(run)) if step or rank else []
        report = client.export(
            run,
            output,
            steps=sorted({item.step for item in chosen}) if step else (),
            ranks=selection.ranks,
            extended=extended,
            strict_json=strict_json,
            tensors=not no_tensors,
            force=force,
            progress=advance,
        )
    columns = (
        Column("directory", "DIRECTORY"),
        Column("files", "FILES", right=True),
        Column("bytes", "BYTES", show.size, right=True),
    )
    rows = []
    for directory in report.directories:
        files = [file for file in directory.rglob("*") if file.is_file()] if directory.is_dir() else [directory]
        rows.append(
            {"directory": str(directory), "files": len(files), "bytes": sum(file.stat().st_size for file in files)}
        )
    write(options.format or Format.table, columns, rows)

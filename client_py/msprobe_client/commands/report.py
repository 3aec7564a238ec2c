"""msprobe-client report TARGET [GOLDEN] -o report.html"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Server, common
from msprobe_client.commands.sides import SourceOf, connected

EXAMPLES = (
    "msprobe-client report tuesday -o report.html",
    "msprobe-client report dump_a dump_b -o report.html",
)


def run(
    context: typer.Context,
    target: SourceOf,
    golden: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="To compare it with: a run, or a dump directory", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file")] = Path("report.html"),
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Write one HTML file to attach to a bug: verdict, heat map, record, stack, modules, differences."""
    options = common(context, server, data_dir, output_format)
    if output.is_dir():
        raise typer.BadParameter(f"{output} is a directory; name a file in it", param_hint="--output")
    from msprobe_client.output import Column, Format, progress, show, write

    sides = (target,) if golden is None else (target, golden)
    with connected(options, *sides) as client, progress.bar("report", "files") as advance:
        size = client.report(target, output, golden, progress=advance)
    columns = (Column("path", "FILE"), Column("bytes", "BYTES", show.size, right=True))
    write(options.format or Format.table, columns, [{"path": str(output), "bytes": size}])

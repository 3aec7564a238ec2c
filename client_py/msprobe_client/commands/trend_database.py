"""msprobe-client trend-database SOURCE -o OUT"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, Selection, Server, Steps, common
from msprobe_client.commands.sides import connected, read_file

EXAMPLES = (
    "msprobe-client trend-database tuesday -o trends",
    "msprobe-client trend-database dump_a --micro-steps -o trends/a.trend.db",
    "msprobe-client trend-database monitor_output -o trends",
)


class Of(str, Enum):
    auto = "auto"
    dump = "dump"
    monitor = "monitor"


def run(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="A run, a dump directory, or the output of TrainerMon or TrainerMonitorV2 (run:NAME: surely a run)",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="OUT", help="A directory, or a file NAME.trend.db", show_default=False),
    ],
    step: Steps = None,
    rank: Ranks = None,
    micro_steps: Annotated[
        bool, typer.Option("--micro-steps", "--micro_steps", help="Count how often the model ran, not steps")
    ] = False,
    mapping: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="JSON", help="Texts in names, and what stands in their place", show_default=False),
    ] = None,
    of: Annotated[Of, typer.Option("--of", help="What a directory holds; auto: as its files say")] = Of.auto,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Write statistics by step, rank and tensor for TensorBoard's TrendVis: heat maps and curves."""
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    from msprobe_client.analysis_client import is_path
    from msprobe_client.output import Column, Format, progress, show, warn, write
    from msprobe_client.trend_file import kinds_in, trend_file

    monitor = of is Of.monitor
    if of is Of.auto and is_path(source):
        monitor = kinds_in(Path(source)) == ["monitor"]
    renames = read_file("--mapping", lambda module: module.renames(mapping)) if mapping else ()
    with connected(options, source) as client, progress.bar("trend-database", "steps") as advance:
        report = client.trend_database(
            source,
            trend_file(output, "monitor" if monitor else "dump"),
            monitor=monitor,
            micro_steps=micro_steps,
            renames=renames,
            steps=selection.ranges,
            ranks=selection.ranks,
            progress=advance,
        )
    for text in report.warnings:
        warn(text, str(context.find_root().info_name))
    columns = (
        Column("path", "FILE"),
        Column("bytes", "BYTES", show.size, right=True),
    )
    write(options.format or Format.table, columns, [{"path": report.path, "bytes": report.bytes}])

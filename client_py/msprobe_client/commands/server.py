"""msprobe-client server info | pin | unpin | backup | restore"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msprobe_client.commands.options import Common, DataDir, OutputFormat, RunName, Server, common
from msprobe_client.examples import epilog

if TYPE_CHECKING:
    from msprobe_client.backup import BackupReport

app = typer.Typer(help="Look after a server: what it is, pins, backups.", no_args_is_help=True, rich_markup_mode=None)

BackupDirectory = Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory of the backup", show_default=False)]


@app.command(epilog=epilog(["msprobe-client server info --format json"]))
def info(
    context: typer.Context, server: Server = None, data_dir: DataDir = None, output_format: OutputFormat = None
) -> None:
    """Show what the server says of itself."""
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, show, write

    with options.connect() as client:
        found = client.server_info()
    columns = (
        Column("server_id", "SERVER"),
        Column("version", "VERSION"),
        Column("storage_format", "FORMAT", right=True),
        Column("data_dir", "DATA"),
        Column("started", "STARTED", show.time),
        Column("open_sessions", "OPEN SESSIONS", right=True),
        Column("shards", "SHARDS", lambda shards: " ".join(shards) or "alone"),
    )
    row = {column.name: getattr(found, column.name) for column in columns}
    row["shards"] = [f"{shard.address}{'' if shard.reachable else ' (unreachable)'}" for shard in found.shards]
    write(options.format or Format.table, columns, [row])


@app.command(epilog=epilog(["msprobe-client server pin tuesday"]))
def pin(
    context: typer.Context,
    run: RunName,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Keep a run whatever retention says."""
    _pin(common(context, server, data_dir, output_format), run, pinned=True)


@app.command(epilog=epilog(["msprobe-client server unpin tuesday"]))
def unpin(
    context: typer.Context,
    run: RunName,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Leave a run to retention again."""
    _pin(common(context, server, data_dir, output_format), run, pinned=False)


def _pin(options: Common, run: str, *, pinned: bool) -> None:
    from msprobe_client.output import Column, Format, write

    with options.connect() as client:
        client.pin(run, pinned=pinned)
    columns = (Column("run", "RUN"), Column("pinned", "PINNED", lambda value: "yes" if value else "no"))
    write(options.format or Format.table, columns, [{"run": run, "pinned": pinned}])


@app.command(epilog=epilog(["msprobe-client server backup backups/today"]))
def backup(
    context: typer.Context,
    directory: BackupDirectory,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Write everything the server holds to a new directory; it goes on meanwhile."""
    options = common(context, server, data_dir, output_format)
    with options.connect() as client:
        report = client.backup(directory)
    _tell_of_copy(options, report.directory, report)


@app.command(epilog=epilog(["msprobe-client server restore backups/today /srv/msprobe"]))
def restore(
    context: typer.Context,
    directory: BackupDirectory,
    data_dir: Annotated[Path, typer.Argument(metavar="DATA_DIR", help="New data directory", show_default=False)],
    output_format: OutputFormat = None,
) -> None:
    """Make a data directory of a backup, on which msprobe-server can then be started."""
    from msprobe_client.backup import restore as restore_backup

    report = restore_backup(directory, data_dir)
    options = common(context, None, None, output_format)
    _tell_of_copy(options, data_dir, report, f"start msprobe-server --data_dir {data_dir}")


def _tell_of_copy(options: Common, directory: Path, report: BackupReport, *notes: str) -> None:
    from msprobe_client.output import Column, Ending, Format, show, write

    columns = (
        Column("directory", "DIRECTORY"),
        Column("files", "FILES", right=True),
        Column("bytes", "BYTES", show.size, right=True),
    )
    row = {"directory": directory, "files": report.files, "bytes": report.bytes}
    write(options.format or Format.table, columns, [row], ending=lambda: Ending(notes=notes))

"""msprobe-client server info | pin | unpin | backup | restore"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common
from msprobe_client.examples import epilog

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
def pin(context: typer.Context, run: RunName, server: Server = None, data_dir: DataDir = None) -> None:
    """Keep a run whatever retention says."""
    with common(context, server, data_dir, None).connect() as client:
        client.pin(run)


@app.command(epilog=epilog(["msprobe-client server unpin tuesday"]))
def unpin(context: typer.Context, run: RunName, server: Server = None, data_dir: DataDir = None) -> None:
    """Leave a run to retention again."""
    with common(context, server, data_dir, None).connect() as client:
        client.pin(run, pinned=False)


@app.command(epilog=epilog(["msprobe-client server backup backups/today"]))
def backup(
    context: typer.Context,
    directory: BackupDirectory,
    server: Server = None,
    data_dir: DataDir = None,
) -> None:
    """Write everything the server holds to a new directory; it goes on meanwhile."""
    with common(context, server, data_dir, None).connect() as client:
        report = client.backup(directory)
    typer.echo(f"{report.directory}: {report.files} files, {report.bytes} bytes")


@app.command(epilog=epilog(["msprobe-client server restore backups/today /srv/msprobe"]))
def restore(
    directory: BackupDirectory,
    data_dir: Annotated[Path, typer.Argument(metavar="DATA_DIR", help="New data directory", show_default=False)],
) -> None:
    """Make a data directory of a backup, on which msprobe-server can then be started."""
    from msprobe_client.backup import restore as restore_backup

    report = restore_backup(directory, data_dir)
    typer.echo(f"{data_dir}: {report.files} files, {report.bytes} bytes; start msprobe-server --data_dir {data_dir}")

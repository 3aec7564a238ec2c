"""msprobe-client runs"""

from __future__ import annotations

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Server, common

EXAMPLES = (
    "msprobe-client runs --server gpu-host:50051",
    "msprobe-client runs --data_dir /var/lib/msprobe --format json",
)


def run(
    context: typer.Context, server: Server = None, data_dir: DataDir = None, output_format: OutputFormat = None
) -> None:
    """List the runs."""
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, show, write

    columns = (
        Column("run", "RUN"),
        Column("created", "CREATED", show.time),
        Column("steps", "STEPS", right=True),
        Column("ranks", "RANKS", show.ranks),
        Column("records", "RECORDS", right=True),
        Column("tensors", "TENSORS", right=True),
        Column("nan_tensors", "NaN", right=True),
        Column("inf_tensors", "Inf", right=True),
        Column("bytes", "BYTES", show.size, right=True),
        Column("owner", "OWNER"),
        Column("row_bytes", "", in_table=False),
        Column("payload_bytes", "", in_table=False),
        Column("open_sessions", "", in_table=False),
        Column("pinned", "", in_table=False),
    )
    with options.connect() as client:
        rows = [
            {
                "run": item.run,
                "created": item.created,
                "steps": item.steps,
                "ranks": item.ranks,
                "records": item.records,
                "tensors": item.tensors,
                "nan_tensors": item.nan_tensors,
                "inf_tensors": item.inf_tensors,
                "bytes": item.row_bytes + item.payload_bytes,
                "row_bytes": item.row_bytes,
                "payload_bytes": item.payload_bytes,
                "open_sessions": item.open_sessions,
                "pinned": item.pinned,
                "owner": item.owner,
                "settings": item.settings,
            }
            for item in client.runs()
        ]
    write(options.format or Format.table, columns, rows)

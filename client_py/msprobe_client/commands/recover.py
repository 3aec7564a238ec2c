"""msprobe-client recover"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from msprobe_client.commands.options import OutputFormat, common
from msprobe_client.exit_codes import EXIT_FAILED
from msprobe_client.recovery import KEPT, SECONDS

EXAMPLES = (
    "msprobe-client recover dump",
    "msprobe-client recover dump --to gpu-host:50051",
)


def run(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A dump_path, a directory of sessions' memory (/dev/shm) or spools, or one session's memory",
            show_default=False,
        ),
    ],
    to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--to", metavar="ADDRESS", help="Send to this server. Default: the one each process had named"),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", help="How long a session waits without progress", min=0.1)
    ] = SECONDS,
    output_format: OutputFormat = None,
) -> None:
    """Send what processes had captured and not sent when they were killed.

    What was for a server of a dump_path goes there, and its steps are exported; the one that was still open follows
    within seconds, with a file INCOMPLETE. Sessions whose processes live are left to them. Ends with 3 where something
    stays, and says why.
    """
    options = common(context, None, None, output_format)
    from msprobe_client.output import Column, Format, show, write
    from msprobe_client.recovery import recover

    found = [vars(session) for session in recover(path, to=to, seconds=seconds, access=options.access)]
    columns = (
        Column("run", "RUN"),
        Column("rank", "RANK"),
        Column("process_id", "PROCESS", right=True),
        Column("host", "HOST"),
        Column("state", "STATE"),
        Column("bytes", "BYTES", show.size, right=True),
        Column("records", "UNPACKED", right=True),
        Column("batches", "BATCHES", right=True),
        Column("payloads", "TENSORS", right=True),
        Column("server", "SERVER"),
        Column("why", "WHY"),
        Column("session", "", in_table=False),
    )
    write(options.format or Format.table, columns, found)
    if any(session["state"] == KEPT for session in found):
        raise typer.Exit(EXIT_FAILED)

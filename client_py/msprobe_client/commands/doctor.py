"""msprobe-client doctor"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from msprobe_client.access import Access
from msprobe_client.address import ENVIRONMENT
from msprobe_client.commands.options import OutputFormat, Server, common
from msprobe_client.exit_codes import EXIT_DIFFERS

EXAMPLES = (
    "msprobe-client doctor --server gpu-host:50051",
    "msprobe-client doctor --dump_path dump",
)


def run(
    context: typer.Context,
    server: Server = None,
    dump_path: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--dump_path", "--dump-path", metavar="DIR", help="Also: can an agent write its files there?"),
    ] = None,
    output_format: OutputFormat = None,
) -> None:
    """Say whether everything needed is there, and what to do where it is not.

    Looks at this environment and at the server: reachable, token, versions, clock, disk. Ends with 1 where one fails.
    """
    options = common(context, server, None, output_format)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from msprobe_client import doctor
    from msprobe_client.output import Column, Format, write

    findings = list(doctor.examine(options.server or os.environ.get(ENVIRONMENT) or None, options.access or Access()))
    if dump_path is not None:
        findings.append(doctor.dump_directory(dump_path))
    columns = (
        Column("check", "CHECK"),
        Column("state", "STATE"),
        Column("found", "FOUND"),
        Column("do", "WHAT TO DO"),
    )
    write(options.format or Format.table, columns, [vars(finding) for finding in findings])
    if any(finding.state == doctor.FAILS for finding in findings):
        raise typer.Exit(EXIT_DIFFERS)

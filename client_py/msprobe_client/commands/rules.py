"""msprobe-client rules RUN"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common

EXAMPLES = (
    "msprobe-client rules tuesday --save rules.yaml",
    "msprobe-client rules tuesday --set rules.yaml",
)


def run(
    context: typer.Context,
    run: RunName,
    replace: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--set", metavar="FILE", help="Watch the run by the rules of this YAML file from now on"),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Watch it by the server's own rules again")] = False,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--save", metavar="FILE", help="Write the rules there, as YAML that --set reads"),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """List the rules that watch a run, or change them while it goes on."""
    if reset and replace is not None:
        raise typer.BadParameter("--set and --reset exclude each other; give one of them")
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, write
    from msprobe_client.output.whole_file import whole_file
    from msprobe_client.rules_file import read_rules, rule_rows, rules_text

    rules = None if replace is None else read_rules(replace)
    with options.connect() as client:
        changed = replace is not None or reset
        found = client.monitor.set_rules(run, rules) if changed else client.monitor.rules(run)
    if save is not None:
        with whole_file(save) as scratch:
            scratch.write_text(rules_text(found), encoding="utf-8")
    columns = (
        Column("name", "NAME"),
        Column("kind", "KIND"),
        Column("series", "SERIES"),
        Column("parameters", "PARAMETERS"),
    )
    write(options.format or Format.table, columns, rule_rows(found))

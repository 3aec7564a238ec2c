"""msprobe-client environment RUN [GOLDEN]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common
from msprobe_client.errors import NotFound
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.run_environment import ProcessEnvironment

EXAMPLES = (
    "msprobe-client environment tuesday",
    "msprobe-client environment tuesday monday",
)


def run(
    context: typer.Context,
    run: RunName,
    golden: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Show where the run differs from this one", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Differences of host, dump_path and the like, too")] = False,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Show what a run's processes ran in. With two runs: where they differ, and then it ends with 1."""
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Ending, Format, show, write
    from msprobe_client.run_environment import differences, facts

    notes: list[str] = []
    with options.connect() as client:
        mine = _of(client, run)
        if golden is None:
            found = facts(mine)
        else:
            found, alone = differences(mine, _of(client, golden), places=every)
            if alone:
                notes.append(f"{show.ranks(alone)}: one of the runs alone has it; it is not compared")
            notes.append(f"{len(found)} differences" if found else "nothing differs")
    columns = (
        Column("name", "NAME", kind="text"),
        Column("value", "VALUE", kind="text"),
        *([Column("golden", "GOLDEN", kind="text")] if golden is not None else []),
        Column("ranks", "RANKS", show.ranks),
    )
    rows = [{"name": each.name, "value": each.value, "golden": each.golden, "ranks": each.ranks} for each in found]
    write(options.format or Format.table, columns, rows, ending=lambda: Ending(notes=notes))
    if golden is not None and found:
        raise typer.Exit(EXIT_DIFFERS)


def _of(client: Client, run: str) -> list[ProcessEnvironment]:
    found = list(client.environment(run))
    if not found:
        raise NotFound(f"run {run} has no process yet that told what it runs in")
    return found

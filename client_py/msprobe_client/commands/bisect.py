"""msprobe-client bisect GOLDEN -- COMMAND"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from msprobe_client.commands.options import OutputFormat, common
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.output import Mark, Row

EXAMPLES = (
    "msprobe-client bisect dump_a --limit 1e-5 -- python forward.py",
    "msprobe-client bisect float64 --limit 1e-5 --name 'layers.*' -- python forward.py",
)


def run(
    context: typer.Context,
    golden: Annotated[
        str,
        typer.Argument(
            metavar="GOLDEN",
            help="Repairs by a dump of the right run, task tensor; by run:NAME; or by float64 or float32",
            show_default=False,
        ),
    ],
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND",
            help="Calls debugger.graft(), computes, and prints the distance of its output; see docs/bisect.md",
            show_default=False,
        ),
    ],
    *,
    limit: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            "--limit",
            min=0,
            help="Up to this distance the output agrees; default: between that of no repair and that of all",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--name", metavar="GLOB", help="Modules that may be at fault; several times; default: all"),
    ] = None,
    step: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--step", min=0, help="Of the golden; default: that which the program computes"),
    ] = None,
    output_format: OutputFormat = None,
) -> None:
    """Run a program with other modules repaired each time, until the smallest set that heals its output is known.

    One fault among N modules takes at most log2(N) + 2 runs. Exit code 1: some modules are at fault; 0: the output
    agrees as it is.
    """
    from msprobe_client.bisect.programs import Program, path_of
    from msprobe_client.bisect.search import Trial, bound, smallest
    from msprobe_client.output import Column, Ending, Format, progress, write

    chosen = common(context, None, None, output_format).format or Format.table
    with Program(command, golden, step) as program, progress.bar("bisect", "runs") as advance:
        done, total = 0, 0

        def note(trial: Trial) -> None:
            nonlocal done, total
            done += 1
            total = total or bound(len(program.modules(name or ["*"])), 1)
            advance(done, max(done, total))

        found = smallest(lambda: program.modules(name or ["*"]), program.distance, limit, note)
        modules = len(program.modules(name or ["*"]))
    columns = [
        Column("run", "RUN", right=True),
        Column("repaired", "REPAIRED", right=True),
        Column("distance", "DISTANCE", lambda value: f"{value:.6g}", right=True),
        Column("verdict", "VERDICT"),
        Column("names", "", in_table=False),
    ]
    rows = [
        {
            "run": number,
            "repaired": len(trial.repaired),
            "distance": trial.distance,
            "verdict": "agrees" if trial.agrees else "differs",
            "names": list(trial.repaired) if chosen is Format.json else " ".join(trial.repaired),
        }
        for number, trial in enumerate(found.trials, start=1)
    ]
    paths = [path_of(each) for each in found.names]
    shown = [f"at fault: {', '.join(paths)}; {len(rows)} runs, {modules} modules"] if paths else []
    notes = [] if paths else ["the final output agrees as it is"]
    facts = {"at_fault": list(found.names), "modules": modules}
    write(chosen, columns, rows, mark=_mark, ending=lambda: Ending(notes=notes, facts=facts, shown=shown))
    if paths:
        raise typer.Exit(EXIT_DIFFERS)


def _mark(row: Row) -> Mark:
    return "bad" if row["verdict"] == "differs" else ""

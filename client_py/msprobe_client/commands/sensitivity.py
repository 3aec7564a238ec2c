"""msprobe-client sensitivity SOURCE"""

from __future__ import annotations

from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.check import Engine, Workforce, crew_of, is_of_mindspore, refuse_unusable, rows_by_workers
from msprobe_client.commands.options import Connection, Selection
from msprobe_client.commands.sides import Where, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.output import Column, Mark, Row
    from msprobe_client.sensitivity.rows import SensitivityRow

EXAMPLES = (
    "msprobe-client sensitivity tuesday",
    "msprobe-client sensitivity dump_a --name 'Functional.linear.*' --rows all --format csv",
    "msprobe-client sensitivity tuesday --workers 2 --draws 32",
    "msprobe-client sensitivity tuesday --mode bit_noise --limit 100",
    "msprobe-client sensitivity tuesday --mode no_change",
)


class Mode(str, Enum):
    """As sensitivity/rows.py lists them."""

    relative_noise = "relative_noise"
    add_noise = "add_noise"
    bit_noise = "bit_noise"
    change_value = "change_value"
    exchange_value = "exchange_value"
    improve_precision = "improve_precision"
    no_change = "no_change"
    to_cpu = "to_cpu"


class Show(str, Enum):
    sensitive = "sensitive"
    all = "all"


def run(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="A run or dump directory, captured at level L1 or mix; or job:N, an earlier one", show_default=False
        ),
    ],
    *,
    mode: Annotated[Mode, typer.Option("--mode", help="How a call is perturbed; see docs/sensitivity.md")] = (
        Mode.relative_noise
    ),
    draws: Annotated[int, typer.Option("--draws", min=1, max=1000, help="Perturbations of a call")] = 8,
    limit: Annotated[
        float,
        typer.Option("--limit", min=0, help="What is sensitive; default: what costs half of the digits of the dtype"),
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is drawn")] = 1234,
    device: Annotated[
        str,
        typer.Option("--device", help="Whose rounding is measured: of what was saved, or of cpu, cuda:0, npu:0"),
    ] = "recorded",
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=0,
            max=256,
            help="Processes here, of one thread each: a call that crashes costs one of them",
        ),
    ] = 0,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="queue: by workers elsewhere (msprobe-client worker), as a job; ray: on Ray"),
    ] = Engine.local,
    ray_address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ray-address", metavar="ADDRESS", help="Of the cluster; default: $RAY_ADDRESS, else one here"),
    ] = None,
    rows: Annotated[Optional[Show], typer.Option("--rows", help="Default: sensitive in a table, else all")] = None,  # noqa: UP045
    where: Where,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE", help="A file instead of stdout"),
    ] = None,
    connection: Connection,
) -> None:
    """Perturb the inputs of every recorded call, and list those that amplify it most, the worst first.

    Exit code 1: some are sensitive.
    """
    from msprobe_client.output import Ending, Format, progress, write
    from msprobe_client.sensitivity.rows import WRONG, worst_first

    options = connection.common(context)
    chosen = options.format or Format.table
    settings = {
        "device": device,
        "mode": mode.value,
        "draws": draws,
        "seed": seed,
        "limit": limit,
        "shown": source,
    }
    with connected(options, source) as client, progress.bar("sensitivity", "calls") as advance:
        crew = crew_of(engine, workers, ray_address, client)
        by = Workforce(crew, engine is Engine.queue, options.access, device)
        found = worst_first(_found(client, source, where, settings, by, advance))
    counts: dict[str, int] = {}
    for row in found:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    sensitive_only = (rows or (Show.sensitive if chosen is Format.table else Show.all)) is Show.sensitive
    shown = [row for row in found if not sensitive_only or row.verdict in WRONG]
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "nothing to perturb"
    ending = Ending(facts={"verdicts": dict(sorted(counts.items()))}, shown=(said,))
    write(chosen, _columns(), map(_row, shown), output, _mark, ending=lambda: ending)
    if any(row.verdict in WRONG for row in found):
        raise typer.Exit(EXIT_DIFFERS)


def _found(
    client: Client, source: str, where: Any, settings: dict[str, Any], by: Workforce, advance: Any
) -> list[SensitivityRow]:
    from msprobe_client import analysis_client
    from msprobe_client.check import queued
    from msprobe_client.check.calls import Place
    from msprobe_client.jobs import sensitivity

    later = "shows them again"
    if queued.is_job(source):
        job = queued.job_of(client, source, sensitivity.KIND)
        return rows_by_workers(client, job, by, sensitivity.rows, later, advance)
    if not by.by_others and not by.crew.on_ray:
        refuse_unusable(settings["device"], is_of_mindspore(client, source), sensitivity.KIND)
    with ExitStack() as cleanup:
        if analysis_client.is_path(source):
            run_name = cleanup.enter_context(analysis_client.uploaded(client, Path(source)))
        else:
            run_name = source.removeprefix(analysis_client.RUN_PREFIX)
        selection = Selection(where.step, where.rank)
        places = [Place(run_name, each.step, each.rank) for each in selection.of(source, client.steps(run_name))]
        if by.crew or by.by_others:
            title = f"{sensitivity.KIND} {source}"
            job = queued.put(client, places, title, where.name, settings, sensitivity.KIND, sensitivity.items)
            return rows_by_workers(client, job, by, sensitivity.rows, later, advance)
        from msprobe_client.sensitivity.sensing import Settings, measured

        found = []
        for done, total, rows in measured(client, places, Settings(**settings), where.name):
            advance(done, total)
            found += rows
        return found


def _columns() -> list[Column]:
    from msprobe_client.output import Column

    def number(value: Any) -> str:
        return "" if value is None else f"{value:.3g}"

    def numeric(name: str, title: str, in_table: bool = True) -> Column:
        return Column(name, title, number, right=True, in_table=in_table, kind="float")

    return [
        Column("name", "output"),
        Column("step", "step", right=True, kind="int"),
        Column("rank", "rank"),
        Column("operation", "operation", in_table=False),
        Column("verdict", "verdict"),
        Column("cause", "cause", kind="text"),
        Column("mode", "mode", in_table=False),
        numeric("amplification", "amplification"),
        numeric("least", "least"),
        numeric("most", "most"),
        numeric("median", "median"),
        numeric("limit", "limit", in_table=False),
        numeric("rounding", "rounding"),
        numeric("rounding_limit", "rounding limit", in_table=False),
        Column("draws", "draws", right=True, in_table=False, kind="int"),
        Column("dtype", "dtype"),
        Column("shape", "shape", lambda value: str(list(value))),
        Column("inputs", "inputs", in_table=False),
        Column("module", "module", kind="text"),
        Column("reason", "reason", kind="text"),
        Column("stack", "stack", kind="text"),
        Column("repeat", "repeat", in_table=False),
    ]


def _row(row: SensitivityRow) -> Row:
    from dataclasses import asdict

    return asdict(row)


def _mark(row: Row) -> Mark:
    return "bad" if row["verdict"] != "stable" and row["verdict"] != "skip" else ""

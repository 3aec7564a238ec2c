"""msprobe-client local-error RUN GOLDEN"""

from __future__ import annotations

from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from msprobe_client.commands.options import Connection, Selection
from msprobe_client.commands.sides import SourceOf, Where, as_run, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.local_error.rows import LocalErrorRow, Sides
    from msprobe_client.model import Rank, StepSummary
    from msprobe_client.output import Column, Mark, Row

EXAMPLES = (
    "msprobe-client local-error tuesday monday",
    "msprobe-client local-error dump_a dump_b --step 3 --name 'Functional.*' --rows all --format csv",
)


class Show(str, Enum):
    adding = "adding"
    all = "all"


def run(
    context: typer.Context,
    source: SourceOf,
    golden: SourceOf,
    *,
    golden_step: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--golden-step", min=0, help="Of the golden; default: the same", show_default=False),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Where operators run: cpu, cuda:0, npu:0")] = "cpu",
    limit: Annotated[
        float, typer.Option("--limit", min=0, help="Of what is added; default: what rounding adds, by dtype")
    ] = 0.0,
    rows: Annotated[Optional[Show], typer.Option("--rows", help="Default: adding in a table, else all")] = None,  # noqa: UP045
    where: Where,
    connection: Connection,
) -> None:
    """Tell the error that each module and operator adds from the error that it inherits, the worst first.

    Operators run on the golden's inputs here; modules did in the program, by debugger.local_error. Exit code 1: some
    add more than the limit.
    """
    from dataclasses import asdict
    from importlib.util import find_spec

    from msprobe_client.errors import InvalidArgument
    from msprobe_client.output import Ending, Format, progress, write

    if find_spec("torch") is None:
        raise InvalidArgument("local-error computes in torch, and this environment has none; install it here")
    # torch comes first: a server of one's own leaves when nobody asks for a minute.
    from msprobe_client.local_error.measuring import LocalErrors, Settings
    from msprobe_client.local_error.rows import NOT_RUN, worst_first

    options = connection.common(context)
    chosen = options.format or Format.table
    with connected(options, source, golden) as client, progress.bar("local-error", "calls") as advance:
        found: list[LocalErrorRow] = []
        with ExitStack() as cleanup:
            run_name, golden_name = (cleanup.enter_context(as_run(client, each)) for each in (source, golden))
            places = _sides(client, (source, run_name), (golden, golden_name), golden_step, where)
            settings = Settings(device, limit)
            for sides in places:
                errors = LocalErrors(client, sides, settings, where.name)
                for done, some in enumerate(errors.rows(), start=1):
                    advance(done, len(errors))
                    found += some
    found = worst_first(found)
    counts = {verdict: sum(row.verdict == verdict for row in found) for verdict in ("adds", "passes", "skip")}
    adding_only = (rows or (Show.adding if chosen is Format.table else Show.all)) is Show.adding
    shown = [row for row in found if not adding_only or row.verdict == "adds"]
    said = (
        ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "there is nothing to compare"
    )
    unseen = sum(row.reason == NOT_RUN for row in found)
    notes = [f"{unseen} calls of modules are skipped, so what changed weights add is not seen: {NOT_RUN}"]
    ending = Ending(notes=notes if unseen else [], facts={"verdicts": counts}, shown=(said,))
    write(chosen, _columns(), map(asdict, shown), mark=_mark, ending=lambda: ending)
    if counts["adds"]:
        raise typer.Exit(EXIT_DIFFERS)


def _sides(
    client: Client, target: tuple[str, str], golden: tuple[str, str], golden_step: int | None, where: Where
) -> list[Sides]:
    """Steps of the run that the golden has too; not those that are a second pass. (as the user says, run) each."""
    from msprobe_client.errors import NotFound
    from msprobe_client.local_error.rows import Sides

    summaries = client.steps(target[1])
    again = _second_passes(client, target[1], summaries)
    those = client.steps(golden[1])
    sides = []
    for first in Selection(where.step, where.rank).of(target[0], summaries):
        if (first.step, first.rank) in again:
            continue
        step = first.step if golden_step is None else golden_step
        ranks = [each.rank for each in those if each.step == step]
        rank = first.rank if first.rank in ranks else ranks[0] if len(ranks) == 1 else None
        if rank is None:
            continue
        second = first.step + 1 if (first.step + 1, first.rank) in again else None
        sides.append(Sides(target[1], first.step, first.rank, golden[1], step, rank, second))
    if not sides:
        raise NotFound(f"{golden[0]} has none of these steps of {target[0]}; name one by --golden-step")
    return sides


def _second_passes(client: Client, run: str, summaries: list[StepSummary]) -> set[tuple[int, Rank]]:
    """The (step, rank) that debugger.local_error made: each module was touched, and none in the step before."""

    def touched(step: int, rank: Rank) -> bool:
        modules = (each for each in client.records(run, step=step, rank=rank, name="Module.*.forward.*"))
        return next((each.touched for each in modules), False)

    places = {(each.step, each.rank) for each in summaries}
    return {
        (step, rank)
        for step, rank in places
        if (step - 1, rank) in places and touched(step, rank) and not touched(step - 1, rank)
    }


def _columns() -> list[Column]:
    from msprobe_client.output import Column

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3g}"

    def numeric(name: str, in_table: bool = True) -> Column:
        return Column(name, name.upper(), number, right=True, in_table=in_table, kind="float")

    return [
        Column("name", "OUTPUT"),
        Column("step", "STEP", right=True, kind="int"),
        Column("rank", "RANK"),
        Column("kind", "KIND", in_table=False),
        Column("verdict", "VERDICT"),
        numeric("added"),
        numeric("inherited"),
        numeric("total"),
        numeric("limit"),
        Column("dtype", "DTYPE"),
        Column("reason", "REASON", kind="text"),
    ]


def _mark(row: Row) -> Mark:
    return "bad" if row["verdict"] == "adds" else ""

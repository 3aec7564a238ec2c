"""msprobe-client hang RUN"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from msprobe_client.commands.options import Connection, RunName
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.communication import Hang, StandingRank

EXAMPLES = (
    "msprobe-client hang tuesday",
    "msprobe-client hang tuesday --least 60 --format json",
)


def run(
    context: typer.Context,
    run: RunName,
    *,
    least: Annotated[
        int, typer.Option("--least", min=1, metavar="SECONDS", help="Of a run that goes on: how long a call has stood")
    ] = 10,
    connection: Connection,
) -> None:
    """Say in which operation each rank stands, or stood when it died, and for whom it waits.

    Ends with 0 where none waits, with 1 where one does.
    """
    common = connection.common(context)
    with common.connect() as client:
        from msprobe_client.output import Column, Ending, Format, show, write

        found = client.hang(run, least_seconds=least)
        young = 0 if found.hangs or least == 1 else _calls(client.hang(run, least_seconds=1)) - _calls(found)
        columns = (
            Column("rank", "RANK"),
            Column("step", "STEP", right=True),
            Column("stands", "STANDS IN"),
            Column("group", "GROUP"),
            Column("since", "SINCE"),
            Column("waits_for", "WAITS FOR", show.ranks),
            *(Column(name, "", in_table=False) for name in ("over", "op", "stack", "last_op", "last_stack")),
        )
        flat = common.format is not Format.json
        rows = [_row(standing, flat=flat) for standing in found.ranks]
        write(
            common.format or Format.table, columns, rows, ending=lambda: _ending(found, _why_none(young, least), Ending)
        )
    if found.hangs:
        raise typer.Exit(EXIT_DIFFERS)


def _calls(hang: Hang) -> int:
    return sum(len(standing.calls) for standing in hang.ranks)


def _why_none(young: int, least: int) -> str:
    none = "no rank waits for another"
    if young <= 0:
        return none
    calls = "1 call has" if young == 1 else f"{young} calls have"
    return f"{none}; {calls} stood for less than {least} s: ask again, or with --least 1"


def _ending(found: Hang, why_none: str, ending: Any) -> Any:
    from msprobe_client.commands.collectives import mismatch_row
    from msprobe_client.output import show

    shown = found.sentences() if found.hangs else []
    for standing in found.ranks if found.hangs else ():
        stack = standing.calls[0].stack if standing.calls else standing.stack or standing.last_stack
        if stack:
            shown += [f"{standing}:", *(f"  {line}" for line in show.stack(stack))]
    facts = {
        "hangs": found.hangs,
        "blamed": list(found.blamed),
        "cycle": list(found.cycle),
        "unknown": list(found.unknown),
        "first": None if found.first is None else mismatch_row(found.first, flat=False),
    }
    return ending(notes=[] if found.hangs else [why_none], facts=facts, shown=shown)


def _row(standing: StandingRank, *, flat: bool) -> dict[str, Any]:
    from msprobe_client.commands.collectives import call_row

    call = standing.calls[0] if standing.calls else None
    row: dict[str, Any] = {
        "rank": standing.rank,
        "step": standing.step,
        "over": standing.over,
        "stands": str(call) if call is not None else standing.op or f"behind {standing.last_op}",
        "group": "" if call is None else call.group,
        "since": "" if call is None or call.began is None else call.began.isoformat(timespec="seconds"),
        "waits_for": list(standing.waits_for),
        "op": standing.op,
        "stack": list(standing.stack),
        "last_op": standing.last_op,
        "last_stack": list(standing.last_stack),
    }
    if not flat:
        row["calls"] = [call_row(each) for each in standing.calls]
    return row

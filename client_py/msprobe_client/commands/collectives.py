"""msprobe-client collectives RUN"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from msprobe_client.commands.options import Connection, RunName
from msprobe_client.commands.sides import Where
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.communication import CollectiveMismatch, Communication

EXAMPLES = (
    "msprobe-client collectives tuesday",
    "msprobe-client collectives tuesday --step 3 --format json",
)


def run(
    context: typer.Context,
    run: RunName,
    *,
    where: Where,
    connection: Connection,
) -> None:
    """Join the calls between ranks, and name who missed one, or called another.

    Ends with 0 where all fit, with 1 where not.
    """
    common = connection.common(context)
    found: list[CollectiveMismatch] = []
    with common.connect() as client:
        from msprobe_client.output import Column, Ending, Format, progress, show, write

        columns = (
            Column("step", "STEP", right=True),
            Column("kind", "KIND"),
            Column("group", "GROUP"),
            Column("odd", "ODD RANKS", show.ranks),
            Column("of_odd", "THEIR CALL", _shown),
            Column("others", "OTHERS", show.ranks),
            Column("of_others", "THE OTHERS' CALL", _shown),
            *(Column(name, "", in_table=False) for name in ("differing", "why")),
        )
        with progress.bar("collectives", "steps") as advance:
            mismatches = client.collectives(run, **where.arguments(), progress=advance)

            def rows() -> Iterator[dict[str, Any]]:
                for item in mismatches:
                    found.append(item)
                    yield mismatch_row(item, flat=common.format is not Format.json)

            def ending() -> Ending:
                notes = [] if found else ["the calls between ranks fit together"]
                shown = [] if not found else _told(found[0])
                return Ending(
                    notes=notes, facts={"first": mismatch_row(found[0], flat=False) if found else None}, shown=shown
                )

            write(common.format or Format.table, columns, rows(), ending=ending)
    if found:
        raise typer.Exit(EXIT_DIFFERS)


def _told(item: CollectiveMismatch) -> list[str]:
    from msprobe_client.output import show

    lines = [f"first: {item}"]
    for call in (item.of_odd, item.of_others):
        if call is not None and call.stack:
            lines += [f"  {call.rank}, {call.op}:", *(f"    {line}" for line in show.stack(call.stack))]
    return lines


def mismatch_row(item: CollectiveMismatch, *, flat: bool) -> dict[str, Any]:
    return {
        "step": item.step,
        "kind": item.kind,
        "group": item.group,
        "odd": list(item.odd),
        "of_odd": _shown(item.of_odd) if flat else call_row(item.of_odd),
        "others": list(item.others),
        "of_others": _shown(item.of_others) if flat else call_row(item.of_others),
        "differing": list(item.differing),
        "why": str(item),
    }


def call_row(call: Communication | None) -> dict[str, Any] | None:
    """Of a json document."""
    if call is None:
        return None
    return {
        "op": call.op,
        "operation": call.operation,
        "step": call.step,
        "rank": call.rank,
        "group": call.group,
        "members": list(call.members),
        "sequence": call.sequence,
        "peer": call.peer,
        "bytes": call.bytes,
        "dtype": call.dtype,
        "shape": call.shape,
        "reduce_op": call.reduce_op,
        "root": call.root,
        "async": call.is_async,
        "began": None if call.began is None else call.began.isoformat(),
        "ended": call.ended,
        "stack": list(call.stack),
    }


def _shown(call: Any) -> str:
    return "" if call is None else str(call)

"""msprobe-client replay SOURCE"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msprobe_client.commands.options import Connection, Selection
from msprobe_client.commands.sides import SourceOf, Where, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.comparison import Divergence, ReplicaDifference
    from msprobe_client.model import Rank

EXAMPLES = (
    "msprobe-client replay dump_a --step 3",
    "msprobe-client replay tuesday --ranks",
)


def run(
    context: typer.Context,
    source: SourceOf,
    *,
    where: Where,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Compare ranks instead: parameters and results of collectives, any steps")
    ] = False,
    connection: Connection,
) -> None:
    """Compare the two passes of each debugger.replay, and name the first operation that is not deterministic.

    A directory does not say which steps are replays: --step names the first pass. Ends with 0 where all is the same,
    with 1 where not.
    """
    common = connection.common(context)
    with connected(common, source) as client:
        from msprobe_client.output import Column, Ending, Format, write

        chosen = common.format or Format.table
        if ranks:
            rows, odd = _of_ranks(client, source, where)
            differs = bool(odd)
            columns = [
                Column("step", "STEP", right=True),
                Column("kind", "KIND"),
                Column("tensor", "TENSOR"),
                Column("odd", "ODD RANKS"),
                Column("others", "OTHERS"),
                *(Column(name, "", in_table=False) for name in ("op", "module", "stack")),
            ]
            notes = [] if odd else ["what ranks must have alike is the same on all of them"]
            shown = [f"first: {odd[0]}", *_stack(odd[0].stack)] if odd else []
            facts: dict[str, Any] = {}
        else:
            rows, found = _of_passes(client, source, where)
            differs = bool(found)
            columns = [
                Column("step", "STEP", right=True),
                Column("again", "AGAIN", right=True),
                Column("rank", "RANK"),
                Column("verdict", "VERDICT"),
                Column("blame", "BLAME"),
                Column("culprit", "TENSOR"),
                *(Column(name, "", in_table=False) for name in ("op", "module", "first", "reason", "path", "stack")),
            ]
            notes = [] if found else ["both passes of each replay are the same, bit by bit"]
            shown = [f"first: {found[0]}", *_stack(found[0].stack)] if found else []
            facts = {"first": next((row for row in rows if row["first"]), None)}
    if chosen is not Format.json:
        rows = [{name: _text(value) for name, value in row.items()} for row in rows]
    write(chosen, columns, rows, ending=lambda: Ending(notes=notes, facts=facts, shown=shown))
    if differs:
        raise typer.Exit(EXIT_DIFFERS)


def _of_passes(client: Client, source: str, where: Where) -> tuple[list[dict[str, Any]], list[Divergence]]:
    """A row for each replay and rank; and the first divergence of each replay, in order."""
    from msprobe_client.comparison import Divergence
    from msprobe_client.errors import DataError

    rows: list[dict[str, Any]] = []
    firsts: list[Divergence] = []
    for step, places in _replays(client, source, where).items():
        found: dict[Rank, Divergence] = {}
        for item in client.first_divergence(
            source, source, mode="checksum", steps=[(step, step)], ranks=places, name=where.name, golden_step_offset=1
        ):
            if not isinstance(item, Divergence):
                raise DataError(f"step {step} of {item.rank} has no second pass: the replay did not end")
            if item.first:
                firsts.append(item)
            found[item.rank] = item
        for rank in places or list(found):
            rows.append(_row(step, rank, found.get(rank)))
    return rows, firsts


def _replays(client: Client, source: str, where: Where) -> dict[int, list[Rank]]:
    """The first pass of each replay that is asked for, with its ranks; of a directory, without."""
    from msprobe_client.analysis_client import RUN_PREFIX, is_path
    from msprobe_client.errors import NotFound

    selection = Selection(where.step, where.rank)
    if is_path(source):
        if not selection.ranges or any(first != last for first, last in selection.ranges):
            raise typer.BadParameter(
                f"{source} is a directory, which does not say which steps are replays; name each first pass, no range",
                param_hint="--step",
            )
        return {step: list(selection.ranks) for step, _ in selection.ranges}
    run = source.removeprefix(RUN_PREFIX)
    places: dict[int, list[Rank]] = {}
    for summary in client.steps(run):
        places.setdefault(summary.step, []).append(summary.rank)
    replays = {}
    for first, there in places.items():
        if not any(low <= first <= high for low, high in selection.ranges or [(first, first)]):
            continue
        ranks = [rank for rank in there if not selection.ranks or rank in selection.ranks]
        if ranks and first + 1 in places and _is_second_pass(client, run, first + 1, ranks[0]):
            replays[first] = ranks
    if not replays:
        raise NotFound(f"run {run} has no replay there; call debugger.replay(step_fn) in the program")
    return replays


def _is_second_pass(client: Client, run: str, step: int, rank: Rank) -> bool:
    """Every call of one says that it was touched; load touches modules alone."""
    return next((call.touched for call in client.records(run, step=step, rank=rank, name="*.forward")), False)


def _row(step: int, rank: Rank, found: Divergence | None) -> dict[str, Any]:
    return {
        "step": step,
        "again": step + 1,
        "rank": rank,
        "verdict": "same" if found is None else "differs",
        "blame": "" if found is None else found.blame,
        "culprit": "" if found is None else found.culprit,
        "op": "" if found is None else found.op,
        "module": "" if found is None else found.module,
        "first": found is not None and found.first,
        "reason": "" if found is None else str(found),
        "path": [] if found is None else list(found.path),
        "stack": [] if found is None else list(found.stack),
    }


def _of_ranks(client: Client, source: str, where: Where) -> tuple[list[dict[str, Any]], list[ReplicaDifference]]:
    from msprobe_client.output import progress

    with progress.bar("replay", "steps") as advance:
        found = list(client.replicas(source, **where.arguments(), progress=advance))
    rows = [
        {
            "step": item.step,
            "kind": item.kind,
            "tensor": item.tensor,
            "odd": list(item.odd),
            "others": list(item.others),
            "op": item.op,
            "module": item.module,
            "stack": list(item.stack),
        }
        for item in found
    ]
    return rows, found


def _stack(stack: tuple[str, ...]) -> Iterator[str]:
    from msprobe_client.output import show

    return (f"  {line}" for line in show.stack(stack))


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return "; ".join(" ".join(str(each).split()) for each in value)
    return value

"""msprobe-client records SOURCE"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from msprobe_client.commands.options import Common, Connection, Ranks, Request, Selection, Steps
from msprobe_client.commands.sides import SourceOf, connected
from msprobe_client.commands.tensor_filters import TensorFilters, found_columns, found_row
from msprobe_client.errors import NotFound

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.model import Rank, Record

EXAMPLES = (
    "msprobe-client records tuesday --step 3 --rank 0 --name 'Functional.*'",
    "msprobe-client records dump_a --step 3 --where 'nan > 0'",
    "msprobe-client records tuesday --where 'nan > 0' --format csv > nan.csv",
    "msprobe-client records tuesday --step 3 --edges",
)


def run(
    context: typer.Context,
    source: SourceOf,
    *,
    step: Steps = None,
    rank: Ranks = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="GLOB", help="Shell pattern over full names: 'Functional.*'"),
    ] = None,
    token: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--token", min=0, help="Only this forward pass of the step; with --request, this token of it"),
    ] = None,
    request: Request = None,
    filters: TensorFilters,
    stack: Annotated[bool, typer.Option("--stack", help="Add call stacks (json)")] = False,
    edges: Annotated[
        bool, typer.Option("--edges", help="Add which record made each input (json always has it)")
    ] = False,
    connection: Connection,
) -> None:
    """Show records: table and csv one tensor to a line, json one record to a row. Filters of tensors: these alone."""
    options = connection.common(context)
    selection = Selection(step, rank)
    if given := filters.given():
        _refuse_beside_filters(request, stack=stack, edges=edges)
        _show_tensors(options, source, selection, name, token, given)
        return
    from msprobe_client.output import Format, write

    chosen = options.format or Format.table
    rows_of = _record_row if chosen == Format.json else _tensor_rows
    with connected(options, source) as client, _as_run(client, source) as run:
        places = _places(client, source, run, selection, request, token)
        found = (
            record for place in places for record in client.records(run, name=name, with_stack=stack, **place._asdict())
        )
        write(chosen, _columns(places, edges=edges), (row for record in found for row in rows_of(record)))


def _refuse_beside_filters(request: str | None, *, stack: bool, edges: bool) -> None:
    if request is not None:
        raise typer.BadParameter("cannot be combined with filters of tensors; use --name", param_hint="--request")
    if edges:
        raise typer.BadParameter(
            "with filters of tensors there are no edges to show; leave it out", param_hint="--edges"
        )
    if stack:
        raise typer.BadParameter(
            "with filters of tensors there are no stacks to show; leave it out", param_hint="--stack"
        )


def _show_tensors(
    options: Common, source: str, selection: Selection, name: str | None, token: int | None, filters: dict[str, Any]
) -> None:
    from msprobe_client.output import Format, write

    with connected(options, source) as client:
        tensors = client.find(source, name=name, steps=selection.ranges, ranks=selection.ranks, **filters)
        rows = (found_row(item) for item in tensors if token is None or item.token == token)
        write(options.format or Format.table, found_columns(), rows)


class _Place(NamedTuple):
    """A step of a rank, or one forward pass of it."""

    step: int
    rank: Rank
    token: int | None = None
    epoch: int | None = None  # None: the last


def _columns(places: list[_Place], *, edges: bool) -> Any:
    """A table says of which step and rank a record is where there are several."""
    from msprobe_client.output import Column, show

    steps, ranks = ({place[part] for place in places} for part in range(2))
    made_by = (Column("edge", "FROM"),) if edges else ()
    return (
        Column("name", "NAME"),
        Column("step", "STEP", right=True, in_table=len(steps) > 1),
        Column("rank", "RANK", in_table=len(ranks) > 1),
        Column("token", "", in_table=False),
        Column("ordinal", "", in_table=False),
        Column("record", "", in_table=False),
        Column("dtype", "DTYPE"),
        Column("shape", "SHAPE", show.shape),
        Column("max", "MAX", show.number, right=True),
        Column("min", "MIN", show.number, right=True),
        Column("mean", "MEAN", show.number, right=True),
        Column("norm", "NORM", show.number, right=True),
        Column("variance", "", in_table=False),
        Column("nan_count", "NaN", right=True),
        Column("inf_count", "Inf", right=True),
        Column("zero_count", "", in_table=False),
        Column("requires_grad", "", in_table=False),
        Column("device", "", in_table=False),
        Column("checksum", "CHECKSUM"),
        Column("payload", "", in_table=False),
        *made_by,
        Column("note", "NOTE"),
    )


@contextmanager
def _as_run(client: Client, source: str) -> Iterator[str]:
    """The run's name. A dump is a run while the context lasts."""
    from msprobe_client.analysis_client import RUN_PREFIX, is_path, uploaded

    if not is_path(source):
        yield source.removeprefix(RUN_PREFIX)
        return
    with uploaded(client, Path(source), tensors=False) as run:
        yield run


def _places(
    client: Client, source: str, run: str, selection: Selection, request: str | None, token: int | None
) -> list[_Place]:
    """Of a request: each forward pass that held it, or its token `token`, with the batch's other requests."""
    if request is None:
        single = selection.single
        found = [single] if single else [(item.step, item.rank) for item in selection.of(source, client.steps(run))]
        return [_Place(step, rank, token) for step, rank in found]
    steps = client.steps(run, request=request, position=token)
    if not steps:
        what = "a token" if token is None else f"token {token}"
        raise NotFound(f"run {source} has no forward pass that held {what} of request {request!r}")
    return [
        _Place(item.step, item.rank, passed, item.epoch)
        for item in selection.of(source, steps)
        for passed in dict.fromkeys(span.token for span in item.token_spans)
    ]


def _note(record: Record) -> str:
    if record.raised:
        return "raised"
    notes = [] if record.complete else ["never ended"]
    notes += ["fault"] if record.fault else []
    notes += ["recompute"] if record.recompute else []
    notes += ["touched"] if record.touched else []
    return ", ".join(notes)


def _record_row(record: Record) -> Iterator[dict[str, Any]]:
    row = {
        "name": record.full_name,
        "step": record.step,
        "rank": record.rank,
        "token": record.token,
        "ordinal": record.ordinal,
        "kind": record.kind,
        "direction": record.direction,
        "complete": record.complete,
        "raised": record.raised,
        "fault": record.fault,
        "recompute": record.recompute,
        "touched": record.touched,
        "parent": record.parent,
        "fields": record.fields,
    }
    if record.stack:
        row["stack"] = record.stack
    yield row


def _tensor_rows(record: Record) -> Iterator[dict[str, Any]]:
    place = {
        "step": record.step,
        "rank": record.rank,
        "token": record.token,
        "ordinal": record.ordinal,
        "record": record.full_name,
        "note": _note(record),
    }
    empty = True
    for name, stats in record.tensors():
        empty = False
        notes = (_note(record), stats.attributes.get("no_statistics"))
        yield {
            **place,
            "note": ", ".join(note for note in notes if note),
            "name": name,
            "dtype": stats.dtype,
            "shape": stats.shape,
            "max": stats.max,
            "min": stats.min,
            "mean": stats.mean,
            "norm": stats.norm,
            "variance": stats.variance,
            "nan_count": stats.nan_count,
            "inf_count": stats.inf_count,
            "zero_count": stats.zero_count,
            "requires_grad": stats.requires_grad,
            "device": stats.device,
            "checksum": stats.checksum,
            "payload": stats.payload.hash if stats.payload else None,
            "edge": "" if stats.edge is None else str(stats.edge),
        }
    if empty:  # a record without tensors is still a record
        yield {**dict.fromkeys(_TENSOR_KEYS), **place, "name": record.full_name}


_TENSOR_KEYS = (
    "dtype",
    "shape",
    "max",
    "min",
    "mean",
    "norm",
    "variance",
    "nan_count",
    "inf_count",
    "zero_count",
    "requires_grad",
    "device",
    "checksum",
    "payload",
    "edge",
)

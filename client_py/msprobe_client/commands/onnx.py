"""msprobe-client onnx MODEL --input NAME=FILE.npy --run NAME"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import Connection, Selection
from msprobe_client.commands.sides import Judging, as_run, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.comparison import ComparedTensor
    from msprobe_client.model import Rank
    from msprobe_client.offline.graph import OnnxGraph
    from msprobe_client.offline.partners import Partner

_SHOWN = 5  # of folded calls

EXAMPLES = (
    "msprobe-client onnx model.onnx --input x=x.npy --run exported",
    "msprobe-client onnx model.onnx --input x=x.npy --run compared --against tuesday --step 3 --rank 0",
)


def run(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx file", exists=True, show_default=False)],
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="Name of the run it becomes", show_default=False)],
    *,
    inputs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--input", metavar="NAME=FILE.npy", help="Of each input of the model", show_default=False),
    ] = None,
    against: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--against",
            metavar="RUN",
            help="The PyTorch run that it was exported from, or a dump directory of it",
            show_default=False,
        ),
    ] = None,
    step: Annotated[int, typer.Option("--step", min=0, help="Of that run, and of the new one")] = 0,
    rank: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--rank", metavar="RANK", help="Of that run; needed where it has several", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show tensors that agree, too")] = False,
    judging: Judging,
    connection: Connection,
) -> None:
    """Run an ONNX model value by value under onnxruntime, store the values as a run, and compare them with the run that
    the model was exported from.

    Modules are paired by name, calls by edge. Ends with 1 if a tensor differs.
    """
    if not run:
        raise typer.BadParameter("the name is empty", param_hint="--run")
    from msprobe_client.offline.dump import write_dump
    from msprobe_client.offline.graph import OnnxGraph
    from msprobe_client.offline.partners import partners
    from msprobe_client.offline.running import inputs_of, values_of
    from msprobe_client.output import Column, Format, write
    from msprobe_client.scratch import scratch_directory

    options = connection.common(context)
    graph = OnnxGraph.open(model)
    values = values_of(graph, inputs_of(inputs or []))
    shapes = {name: tuple(array.shape) for name, array in values.items()}
    with scratch_directory() as scratch:
        if against is None:
            write_dump(Path(scratch) / f"step{step}" / "rank0", graph, values, [])
            with options.connect(create=True) as client:
                client.import_dump(scratch, run)
            columns = (
                Column("run", "RUN"),
                Column("calls", "CALLS", right=True),
                Column("values", "VALUES", right=True),
            )
            row = {"run": run, "calls": len(graph.calls), "values": len(graph.values())}
            write(options.format or Format.table, columns, [row])
            return
        with connected(options, against) as client, as_run(client, against) as source:
            place = _place(client, (against, source), step, rank)
            found = partners(graph, client.records(source, step=step, rank=place), shapes)
            write_dump(Path(scratch) / f"step{step}" / str(place), graph, values, found)
            client.import_dump(scratch, run)
            rows = _compared(client, run, source, step, place, found, judging)
    _show(options.format, graph, found, rows, every)
    if any(row.is_difference for _, row in rows):
        raise typer.Exit(EXIT_DIFFERS)


def _place(client: Client, against: tuple[str, str], step: int, rank: str | None) -> Rank:
    """against: as the user says, and the run."""
    from msprobe_client.errors import InvalidArgument

    chosen = Selection([str(step)], None if rank is None else [rank]).of(against[0], list(client.steps(against[1])))
    ranks = sorted({summary.rank for summary in chosen})
    if len(ranks) > 1:
        raise InvalidArgument(f"step {step} of {against[0]} has {', '.join(map(str, ranks))}; name one with --rank")
    return ranks[0]


def _compared(
    client: Client, run: str, against: str, step: int, rank: Rank, found: list[Partner], judging: Judging
) -> list[tuple[Partner, ComparedTensor]]:
    """Rows of tensors that both sides have, in order of the graph."""
    from msprobe_client.comparison import ComparedTensor

    by_row = {f"{each.record}.{place}": each for each in found for place in (*each.inputs, *each.outputs)}
    where: dict[str, Any] = {"steps": [(step, step)], "ranks": [rank]}
    rows = client.compare(f"run:{run}", f"run:{against}", judging.options(), rows="all", order="execution", **where)
    met = [(by_row[row.name], row) for row in rows if isinstance(row, ComparedTensor) and row.name in by_row]
    order = {id(each): at for at, each in enumerate(found)}
    return sorted(met, key=lambda pair: (order[id(pair[0])], ".output" in pair[1].name))


def _show(
    chosen: Any, graph: OnnxGraph, found: list[Partner], rows: list[tuple[Partner, ComparedTensor]], every: bool
) -> None:
    from msprobe_client.output import Column, Ending, Format, write

    columns = (
        Column("verdict", "VERDICT"),
        Column("name", "NAME"),
        Column("node", "NODE"),
        Column("operator", "OPERATOR"),
        Column("how", "PAIRED BY"),
        Column("excess", "TIMES TOLERANCE", right=True),
        Column("message", "", in_table=False),
    )
    wrong = {id(partner) for partner, row in rows if row.is_difference and ".output" not in row.name}
    first = next(
        (
            (partner, row)
            for partner, row in rows
            if row.is_difference and id(partner) not in wrong and partner.how != "name"
        ),
        None,
    )
    counts = Counter(partner.how for partner in found)
    alone = len(graph.calls) - counts["edge"] - counts["order"]
    said = [
        f"{len(graph.calls)} calls: {counts['edge']} paired by edge, {counts['order']} by order, "
        f"{alone} without a partner; {counts['name']} modules paired by name"
    ]
    folded = [f"node {each.node} stands for {each.begins} to {each.record}" for each in found if each.begins]
    if folded:
        more = f", and {len(folded) - _SHOWN} more" if len(folded) > _SHOWN else ""
        said.append(f"the exporter folded calls: {', '.join(folded[:_SHOWN])}{more}")
    if first is not None:
        partner, row = first
        taken = "what it takes agrees" if partner.inputs else "what it takes is not in the run"
        what = f"all from {partner.begins} to it are one node; " if partner.begins else ""
        said.append(f"first: {row.name} ({what}node {partner.node}, {partner.operator}) differs, and {taken}")

    def shown() -> Iterator[dict[str, Any]]:
        for partner, row in rows:
            if every or row.is_difference:
                yield {
                    "verdict": row.verdict,
                    "name": row.name,
                    "node": partner.node,
                    "operator": partner.operator,
                    "how": partner.how,
                    "excess": row.excess,
                    "message": row.message,
                }

    facts = {
        "calls": len(graph.calls),
        "paired": dict(counts),
        "alone": alone,
        "first": first[1].name if first else None,
    }
    write(chosen or Format.table, columns, shown(), ending=lambda: Ending(notes=said, facts=facts))

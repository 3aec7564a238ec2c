"""msprobe-client first-divergence TARGET GOLDEN"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msprobe_client.commands.options import Connection
from msprobe_client.commands.sides import AcrossLayouts, Judging, Mapped, SourceOf, Where, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.comparison import ComparedTensor, Divergence, UnpairedStep

_COLUMNS = ("op", "module", "step", "rank", "token", "blame", "culprit", "edge", "path", "first", "evidence", "stack")

EXAMPLES = (
    "msprobe-client first-divergence tuesday monday",
    "msprobe-client first-divergence dump_a dump_b --rtol 1e-3",
    "msprobe-client first-divergence dump_a dump_b --cell-mapping builtin",
)


def run(
    context: typer.Context,
    target: SourceOf,
    golden: SourceOf,
    *,
    where: Where,
    judging: Judging,
    mapped: Mapped,
    across_layouts: AcrossLayouts = False,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Pass over operations that one side lacks")
    ] = False,
    connection: Connection,
) -> None:
    """Find the earliest operation whose inputs agree and whose output does not, and what is to blame."""
    common = connection.common(context)
    options = judging.options(across_layouts=across_layouts, mapping=mapped.mapping())
    selected = where.arguments()
    with connected(common, target, golden) as client:
        from msprobe_client.comparison import Divergence
        from msprobe_client.output import Column, Ending, Format, progress, write

        found: list[Divergence] = []
        lonely: list[UnpairedStep] = []
        notes: list[str] = []
        with progress.bar("first-divergence", "files") as advance:
            for item in client.first_divergence(
                target,
                golden,
                options,
                **selected,
                ignore_missing=ignore_missing,
                note=notes.append,
                progress=advance,
            ):
                if isinstance(item, Divergence):
                    found.append(item)
                else:
                    lonely.append(item)
    first = next((item for item in found if item.first), None)
    ranks = [item for item in found if not item.first]
    chosen = common.format or Format.table
    in_table = chosen == Format.table  # whose lines say all
    columns = [Column(each, "", in_table=False) for each in _COLUMNS]
    ending = Ending(
        notes=[*map(str, lonely), *([] if first else ["no operation diverges"]), *notes],
        facts={"first": None if first is None else _row(first, first, whole=True), "unpaired": lonely},
        shown=[] if first is None else list(_told(first, ranks)),
    )
    rows = [] if in_table else [_row(item, first, whole=chosen == Format.json) for item in ranks]
    write(chosen, columns, rows, ending=lambda: ending)
    if first is not None or lonely:
        raise typer.Exit(EXIT_DIFFERS)


def _told(first: Divergence, ranks: list[Divergence]) -> Iterator[str]:
    from msprobe_client.output import show

    yield str(first)
    if first.module:
        yield f"  module: {first.module}"
    yield f"  blame: {first.blame}"
    if first.golden_op:
        yield f"  golden operation: {first.golden_op}"
    if first.path:
        yield f"  reached by data from: {' <- '.join(first.path)}"
    for row in first.evidence:
        yield f"  {row.verdict:<12}{row.name.removeprefix(first.op)}  {_evidence(row)}"
    yield from (f"  {line}" for line in show.stack(first.stack))
    for item in ranks:
        if item.rank != first.rank:
            yield f"also: {item}"


def _evidence(row: ComparedTensor) -> str:
    from msprobe_client.output import show

    if row.target_scalar is not None or row.golden_scalar is not None:
        return _argument(row)
    parts = [row.target_dtype or row.golden_dtype, row.target_shape or row.golden_shape]
    if row.is_difference and row.basis in ("statistics", "content") and row.verdict in ("differs", "non-finite"):
        said = [show.number(value) for value in (row.target_value, row.golden_value)]
        parts.append(f"{row.statistic or 'worst element'} {said[0]} against {said[1]}")
        parts.append(f"{row.excess:.3g} times the tolerance")
    if row.message:
        parts.append(row.message)
    return " ".join(parts)


def _argument(row: ComparedTensor) -> str:
    sides = (
        (row.target_scalar, row.target_dtype, row.target_shape),
        (row.golden_scalar, row.golden_dtype, row.golden_shape),
    )
    said = [str(scalar) if scalar is not None else f"{dtype} {shape}".strip() for scalar, dtype, shape in sides]
    return said[0] if said[0] == said[1] else f"{said[0]} against {said[1] or 'nothing'}"


def _row(item: Divergence, first: Divergence | None, *, whole: bool) -> dict[str, Any]:
    from msprobe_client.commands.compared_rows import tensor_row

    evidence: Any = [tensor_row(row) for row in item.evidence]
    return {
        "op": item.op,
        "golden_op": item.golden_op or item.op,
        "module": item.module,
        "step": item.step,
        "rank": item.rank,
        "token": item.token,
        "blame": item.blame,
        "culprit": item.culprit,
        "edge": item.edge if whole else str(item.edge or ""),
        "path": list(item.path) if whole else "; ".join(item.path),
        "first": first is not None and (item.step, item.rank) == (first.step, first.rank),
        "evidence": evidence if whole else str(item),
        "stack": list(item.stack) if whole else "; ".join(" ".join(line.split()) for line in item.stack),
    }

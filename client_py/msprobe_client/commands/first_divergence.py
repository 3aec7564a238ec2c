"""msprobe-client first-divergence TARGET GOLDEN"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, Selection, Server, Steps, common
from msprobe_client.commands.sides import (
    AcrossLayouts,
    Atol,
    Mode,
    ModeOf,
    NameGlob,
    Policy,
    Rtol,
    SourceOf,
    ToleranceOf,
    connected,
    tolerances,
)
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.comparison import ComparedTensor, Divergence, UnpairedStep

# Of a stack, on a terminal.
_FRAMES = 8

EXAMPLES = (
    "msprobe-client first-divergence tuesday monday",
    "msprobe-client first-divergence dump_a dump_b --rtol 1e-3",
)


def run(
    context: typer.Context,
    target: SourceOf,
    golden: SourceOf,
    step: Steps = None,
    rank: Ranks = None,
    name: NameGlob = None,
    mode: ModeOf = Mode.best,
    rtol: Rtol = None,
    atol: Atol = None,
    tolerance: ToleranceOf = None,
    policy: Policy = None,
    across_layouts: AcrossLayouts = False,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Pass over operations that one side lacks")
    ] = False,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Find the earliest operation whose inputs agree and whose output does not, and what is to blame."""
    options = common(context, server, data_dir, output_format)
    judged = tolerances(rtol, atol, tolerance, policy)
    selection = Selection(step, rank)
    with connected(options, target, golden) as client:
        from msprobe_client.comparison import Divergence
        from msprobe_client.output import Format, progress

        found: list[Divergence] = []
        lonely: list[UnpairedStep] = []
        with progress.bar("first-divergence", "files") as advance:
            for item in client.first_divergence(
                target,
                golden,
                steps=selection.ranges,
                ranks=selection.ranks,
                name=name,
                mode=mode.value,
                ignore_missing=ignore_missing,
                across_layouts=across_layouts,
                **judged,
                progress=advance,
            ):
                if isinstance(item, Divergence):
                    found.append(item)
                else:
                    lonely.append(item)
    first = next((item for item in found if item.first), None)
    ranks = [item for item in found if not item.first]
    chosen = options.format or Format.table
    if chosen == Format.table:
        _tell(first, ranks, lonely)
    else:
        from msprobe_client.output import Column, write

        names = ("op", "module", "step", "rank", "token", "blame", "culprit", "first", "evidence", "stack")
        rows = [_row(item, first, whole=chosen == Format.json) for item in ranks]
        write(chosen, [Column(each, "") for each in names], rows)
    if first is not None or lonely:
        raise typer.Exit(EXIT_DIFFERS)


def _tell(first: Divergence | None, ranks: list[Divergence], lonely: list[UnpairedStep]) -> None:
    for place in lonely:
        print(f"only the {place.side} has step {place.step} {place.rank}")
    if first is None:
        print("no operation diverges")
        return
    print(first)
    if first.module:
        print(f"  module: {first.module}")
    print(f"  blame: {first.blame}")
    if first.golden_op:
        print(f"  golden operation: {first.golden_op}")
    for row in first.evidence:
        print(f"  {row.verdict:<12}{row.name.removeprefix(first.op)}  {_evidence(row)}")
    for line in first.stack[:_FRAMES]:
        print("  " + " ".join(line.split()))
    for item in ranks:
        if item.rank != first.rank:
            print(f"also: {item}")


def _evidence(row: ComparedTensor) -> str:
    parts = [row.target_dtype or row.golden_dtype, row.target_shape or row.golden_shape]
    if row.is_difference and row.basis in ("statistics", "content") and row.verdict in ("differs", "non-finite"):
        parts.append(f"{row.statistic or 'worst element'} {row.target_value:.6g} against {row.golden_value:.6g}")
        parts.append(f"{row.excess:.3g} times the tolerance")
    if row.message:
        parts.append(row.message)
    return " ".join(parts)


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
        "first": first is not None and (item.step, item.rank) == (first.step, first.rank),
        "evidence": evidence if whole else str(item),
        "stack": list(item.stack) if whole else "; ".join(" ".join(line.split()) for line in item.stack),
    }

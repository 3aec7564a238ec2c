"""msprobe-client signs RUN GOLDEN"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, RunName, Selection, Server, Steps, common
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.comparison import SignSimilarity

EXAMPLES = (
    "msprobe-client signs tuesday monday",
    "msprobe-client signs tuesday monday --name 'summary' --format csv",
)


def run(
    context: typer.Context,
    run: RunName,
    golden: Annotated[str, typer.Argument(help="The run whose signs are right", show_default=False)],
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="GLOB", help="Parameters, a shell pattern: 'layers.*.weight'; summary: all"),
    ] = None,
    step: Steps = None,
    rank: Ranks = None,
    least: Annotated[
        float, typer.Option("--least", min=0, max=1, help="Similarity that a parameter's first step should have")
    ] = 0.97,
    drop: Annotated[
        float, typer.Option("--drop", min=0, max=1, help="How far it may fall from one step to the next")
    ] = 0.03,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Compare the signs of gradients (task grad_probe). Ends with 0 if all are alike, with 1 if some are not."""
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    from msprobe_client.output import Column, Ending, Format, progress, write

    columns = (
        Column("step", "STEP", right=True, kind="int"),
        Column("rank", "RANK", width=8),
        Column("parameter", "PARAMETER", width=48),
        Column("elements", "ELEMENTS", right=True, kind="int"),
        Column("equal", "EQUAL", right=True, kind="int"),
        Column("similarity", "SIMILARITY", _share, right=True, kind="float"),
        Column("verdict", "VERDICT"),
    )
    first: list[SignSimilarity] = []
    notes: list[str] = []
    compared = 0
    summary_only = name == "summary"
    with options.connect() as client, progress.bar("signs", "steps") as advance:
        found = client.signs(
            run,
            golden,
            name=None if summary_only else name,
            steps=selection.ranges,
            ranks=selection.ranks,
            least=least,
            drop=drop,
            note=notes.append,
            progress=advance,
        )

        def rows() -> Iterator[dict[str, Any]]:
            nonlocal compared
            for item in found:
                if summary_only and item.parameter != "summary":
                    continue
                compared += 1
                if item.verdict != "similar" and not first:
                    first.append(item)
                yield _row(item)

        def ending() -> Ending:
            said = notes + ([] if compared else ["no signs are on both sides; task grad_probe keeps them"])
            return Ending(
                notes=said,
                facts={"first": _row(first[0]) if first else None},
                shown=[f"first: {first[0]}"] if first else [],
            )

        write(options.format or Format.table, columns, rows(), ending=ending)
    if first:
        raise typer.Exit(EXIT_DIFFERS)


def _share(value: float) -> str:
    return f"{value:.6f}"


def _row(item: SignSimilarity) -> dict[str, Any]:
    return {
        "step": item.step,
        "rank": item.rank,
        "parameter": item.parameter,
        "elements": item.elements,
        "equal": item.equal,
        "similarity": item.similarity,
        "verdict": item.verdict,
    }

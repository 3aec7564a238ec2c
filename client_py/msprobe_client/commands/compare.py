"""msprobe-client compare TARGET GOLDEN"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import Common, DataDir, OutputFormat, Ranks, Selection, Server, Steps, common

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.comparison import ComparedTensor, RollUp

EXIT_DIFFERS = 1
# Rows of a table on a terminal, where nobody said how many.
_TABLE_ROWS = 40


class Mode(str, Enum):
    best = "best"
    statistics = "statistics"
    checksum = "checksum"
    content = "content"


class Order(str, Enum):
    significance = "significance"
    execution = "execution"


class RollUps(str, Enum):
    module = "module"
    layer = "layer"
    rank = "rank"
    step = "step"


Rtol = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--rtol", min=0, help="Relative tolerance of every floating dtype; default: by dtype"),
]
Atol = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--atol", min=0, help="Absolute tolerance of every floating dtype; default: by dtype"),
]
ToleranceOf = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--tolerance", metavar="DTYPE=RTOL[,ATOL]", help="For one dtype; several times", show_default=False),
]
NameGlob = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--name", metavar="GLOB", help="Shell pattern over full names of records: 'Functional.*'"),
]
ModeOf = Annotated[Mode, typer.Option("--mode", help="What is compared; best: contents, else checksums")]
SourceOf = Annotated[
    str, typer.Argument(help="A run, a dump directory, or a dump.json (run:NAME: surely a run)", show_default=False)
]


def run(
    context: typer.Context,
    target: SourceOf,
    golden: SourceOf,
    step: Steps = None,
    rank: Ranks = None,
    name: NameGlob = None,
    fuzzy: Annotated[bool, typer.Option("--fuzzy", help="Match by name without the call's number, in order")] = False,
    mode: ModeOf = Mode.best,
    rtol: Rtol = None,
    atol: Atol = None,
    tolerance: ToleranceOf = None,
    every: Annotated[bool, typer.Option("--all", help="Show rows that do not differ, too")] = False,
    order: Annotated[Order, typer.Option("--order", help="Worst first, or as the target ran")] = Order.significance,
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--limit", min=0, help=f"Rows of each step and rank; 0: all. Default: {_TABLE_ROWS} in a table"),
    ] = None,
    roll_up: Annotated[
        Optional[list[RollUps]],  # noqa: UP045
        typer.Option("--roll-up", help="Show counts of each module, layer, rank or step instead of rows"),
    ] = None,
    compatible: Annotated[
        bool, typer.Option("--compatible", help="Write the result csv of the established tool into --output")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="With --compatible: where the tables go")
    ] = Path("output"),
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Compare two runs or dumps. Ends with 0 where they agree within tolerance, with 1 where they do not."""
    options = common(context, server, data_dir, output_format)
    tolerances = dict(parse_tolerance(text) for text in tolerance or [])
    selection = Selection(step, rank)
    where: dict[str, Any] = {
        "steps": selection.ranges,
        "ranks": selection.ranks,
        "name": name,
        "matching": "fuzzy" if fuzzy else "exact",
    }
    with connected(options, target, golden) as client:
        if compatible:
            differs = _write_tables(client, target, golden, output, where)
        else:
            from msprobe_client.output import Format

            chosen = options.format or Format.table
            differs = _show(
                client,
                target,
                golden,
                chosen.value,
                [level.value for level in roll_up or []],
                {
                    **where,
                    "mode": mode.value,
                    "rtol": rtol,
                    "atol": atol,
                    "tolerances": tolerances,
                    "rows": "none" if roll_up else "all" if every else "different",
                    "order": order.value,
                    "limit": limit if limit is not None else _TABLE_ROWS if chosen == Format.table else 0,
                },
            )
    if differs:
        raise typer.Exit(EXIT_DIFFERS)


@contextmanager
def connected(options: Common, *sources: str) -> Iterator[Client]:
    """The server that was named; for directories alone, one of our own for as long as this takes."""
    from msprobe_client.address import ENVIRONMENT
    from msprobe_client.analysis_client import is_path

    named = options.server is not None or options.data_dir is not None or os.environ.get(ENVIRONMENT)
    if options.server is not None or options.data_dir is not None or (named and not all(map(is_path, sources))):
        with options.connect() as client:
            yield client
        return
    runs = [source for source in sources if not is_path(source)]
    if runs:
        raise typer.BadParameter(
            f"{runs[0]} is no directory and no file here; for a run give --server ADDRESS or --data_dir DIR"
        )
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from msprobe_client.client import Client

    with tempfile.TemporaryDirectory(prefix="msprobe-compare-") as scratch, Client(data_dir=scratch) as client:
        yield client


def parse_tolerance(text: str) -> tuple[str, tuple[float | None, float | None]]:
    dtype, _, values = text.partition("=")
    relative, _, absolute = values.partition(",")
    try:
        parsed = float(relative) if relative else None, float(absolute) if absolute else None
    except ValueError:
        parsed = None, None
    if not dtype or parsed == (None, None) or any(value is not None and not value >= 0 for value in parsed):
        raise typer.BadParameter(
            f"{text!r} is not understood; write DTYPE=RTOL or DTYPE=RTOL,ATOL, as in bfloat16=0.02,1e-4",
            param_hint="--tolerance",
        )
    return dtype, parsed


def _write_tables(client: Client, target: str, golden: str, output: Path, where: dict[str, Any]) -> bool:
    from msprobe_client.result_files import result_file_names

    differs = False
    for report in client.compare_tables(target, golden, output, file_name=result_file_names("csv"), **where):
        print(
            f"{report.path}: {report.rows} rows, {report.errors} errors, {report.warnings} warnings, "
            f"{report.target_only} without a partner"
        )
        differs = differs or bool(report.errors or report.warnings or report.target_only)
    return differs


def _show(client: Client, target: str, golden: str, chosen: str, levels: list[str], arguments: dict[str, Any]) -> bool:
    from msprobe_client.comparison import ComparedTensor, UnpairedStep
    from msprobe_client.output import Column, Format, progress, show, write

    columns = (
        (
            Column("level", "LEVEL"),
            Column("step", "STEP", right=True),
            Column("rank", "RANK"),
            Column("name", "NAME"),
            Column("rows", "ROWS", right=True),
            Column("differences", "DIFFERENT", right=True),
            Column("worst_excess", "WORST", _times, right=True),
            Column("worst", "WORST TENSOR"),
            Column("first_difference", "FIRST DIFFERENCE"),
        )
        if levels
        else (
            Column("verdict", "VERDICT"),
            Column("name", "NAME"),
            Column("golden_name", "", in_table=False),
            Column("step", "STEP", right=True),
            Column("rank", "RANK"),
            Column("token", "", in_table=False),
            Column("module", "", in_table=False),
            Column("basis", "BY"),
            Column("excess", "x TOLERANCE", _times, right=True),
            Column("statistic", "STATISTIC"),
            Column("target_value", "TARGET", show.number, right=True),
            Column("golden_value", "GOLDEN", show.number, right=True),
            Column("target_dtype", "DTYPE"),
            Column("golden_dtype", "", in_table=False),
            Column("target_shape", "SHAPE"),
            Column("golden_shape", "", in_table=False),
            *(Column(metric, "", in_table=False) for metric in _METRICS),
            Column("message", "MESSAGE"),
        )
    )
    total: RollUp | None = None
    lonely: list[UnpairedStep] = []

    with progress.bar("compare", "files") as advance:
        found = client.compare(target, golden, progress=advance, **arguments)

        def rows() -> Iterator[dict[str, Any]]:
            nonlocal total
            for item in found:
                if isinstance(item, ComparedTensor):
                    yield tensor_row(item)
                elif isinstance(item, UnpairedStep):
                    lonely.append(item)
                elif item.level == "run":
                    total = item
                elif item.level in levels:
                    yield _roll_up_row(item)

        write(Format(chosen), columns, rows())
    assert total is not None
    summary = _summary(total, lonely, arguments)
    if chosen == "json":
        import json

        from msprobe_client.output.json_rows import plain

        print(json.dumps({"summary": plain(_roll_up_row(total)), "unpaired": plain(lonely)}, allow_nan=False))
    else:
        print("\n".join(summary), file=sys.stdout if chosen == "table" else sys.stderr)
    return bool(total.differences or lonely)


def _summary(total: RollUp, lonely: list[Any], arguments: dict[str, Any]) -> list[str]:
    lines = []
    counted = ", ".join(f"{count} {verdict}" for verdict, count in total.verdicts.items())
    lines.append(f"{total.rows} compared: {counted or 'nothing'}")
    shown = arguments["limit"]
    if shown and total.differences > shown and arguments["rows"] == "different":
        lines.append(f"the worst {shown} of each step and rank are shown; --limit 0 shows all")
    if total.first_difference:
        lines.append(f"first difference in order of execution: {total.first_difference}")
    if total.worst:
        lines.append(f"worst: {total.worst} ({_times(total.worst_excess)} the tolerance)")
    lines += [f"only the {item.side} has step {item.step} {item.rank}" for item in lonely]
    if not total.differences and not lonely:
        lines.append("equal within tolerance")
    return lines


_METRICS = (
    "elements",
    "compared",
    "different",
    "over_tolerance",
    "nan_mismatches",
    "inf_mismatches",
    "inf_sign_mismatches",
    "first_non_finite_mismatch",
    "max_abs",
    "mean_abs",
    "rms_abs",
    "max_rel",
    "mean_rel",
    "rms_rel",
    "share_under_1e2",
    "share_under_5e3",
    "share_under_1e3",
    "share_under_1e4",
    "cosine",
    "euclidean",
    "ulp_max",
    "ulp_mean",
    "ulp_share_over",
    "abs_p50",
    "abs_p90",
    "abs_p99",
    "abs_p999",
    "worst_index",
    "worst_target",
    "worst_golden",
)


def tensor_row(item: ComparedTensor) -> dict[str, Any]:
    measured = item.basis in ("statistics", "content")
    return {
        "verdict": item.verdict,
        "name": item.name,
        "golden_name": item.golden_name or item.name,
        "step": item.step,
        "rank": item.rank,
        "token": item.token,
        "module": item.module,
        "basis": item.basis,
        "excess": item.excess,
        "statistic": item.statistic,
        "target_value": item.target_value if measured and item.excess else None,
        "golden_value": item.golden_value if measured and item.excess else None,
        "target_dtype": item.target_dtype,
        "golden_dtype": item.golden_dtype,
        "target_shape": item.target_shape,
        "golden_shape": item.golden_shape,
        **{metric: item.metrics.get(metric) for metric in _METRICS},
        "message": item.message,
    }


def _roll_up_row(item: RollUp) -> dict[str, Any]:
    return {
        "level": item.level,
        "name": item.name,
        "step": item.step,
        "rank": item.rank,
        "rows": item.rows,
        "differences": item.differences,
        "verdicts": item.verdicts,
        "worst_excess": item.worst_excess,
        "worst": item.worst,
        "first_difference": item.first_difference,
    }


def _times(value: float) -> str:
    return "" if value == 0 else f"{value:.3g}x"

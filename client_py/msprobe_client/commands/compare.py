"""msprobe-client compare TARGET GOLDEN"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.mixins import mixin
from msprobe_client.commands.options import Common, Connection
from msprobe_client.commands.sides import AcrossLayouts, Judging, Mapped, SourceOf, Where, connected
from msprobe_client.errors import NotFound
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.analysis_client import Found
    from msprobe_client.compare_options import CompareOptions
    from msprobe_client.comparison import ComparedTensor, RollUp, UnpairedStep
    from msprobe_client.output import Ending, Format

# Rows of a table on a terminal, where nobody said how many.
_TABLE_ROWS = 40


class Order(str, Enum):
    significance = "significance"
    execution = "execution"


class RollUps(str, Enum):
    module = "module"
    layer = "layer"
    rank = "rank"
    step = "step"


class Engine(str, Enum):
    local = "local"
    ray = "ray"


EXAMPLES = (
    "msprobe-client compare tuesday monday --step 3",
    "msprobe-client compare dump_a dump_b --policy tolerances.yaml --all",
    "msprobe-client compare tuesday monday --roll-up layer",
    "msprobe-client compare tuesday monday --compatible --output tables",
)


@mixin
class Matching:
    """Which rows belong together, where their names are the same."""

    fuzzy: Annotated[bool, typer.Option("--fuzzy", help="Match by name without the call's number, in order")] = False
    across_layouts: AcrossLayouts = False

    def options(self) -> dict[str, Any]:
        """Fields of CompareOptions."""
        return {
            "matching": "fuzzy" if self.fuzzy else "exact",
            "across_layouts": self.across_layouts,
        }


@mixin
class Showing:
    """Which rows are shown, in which order, and where."""

    every: Annotated[bool, typer.Option("--all", help="Show rows that do not differ, too")] = False
    order: Annotated[Order, typer.Option("--order", help="Worst first, or as the target ran")] = Order.significance
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--limit", min=0, help=f"Rows of each step and rank; 0: all. Default: {_TABLE_ROWS} in a table"),
    ] = None
    roll_up: Annotated[
        Optional[list[RollUps]],  # noqa: UP045
        typer.Option("--roll-up", help="Show counts of each module, layer, rank or step instead of rows"),
    ] = None
    compatible: Annotated[
        bool, typer.Option("--compatible", help="Write the result tables of mindstudio-probe into --output")
    ] = False
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="A file instead of stdout; with --compatible a directory (./output)"),
    ] = None

    def arguments(self, chosen: Format) -> dict[str, Any]:
        """The client's arguments."""
        from msprobe_client.output import Format

        return {
            "rows": "none" if self.roll_up else "all" if self.every else "different",
            "order": self.order.value,
            "limit": self.limit if self.limit is not None else _TABLE_ROWS if chosen == Format.table else 0,
        }


def run(
    context: typer.Context,
    target: SourceOf,
    golden: SourceOf,
    *,
    where: Where,
    matching: Matching,
    mapped: Mapped,
    judging: Judging,
    showing: Showing,
    engine: Annotated[
        Engine, typer.Option("--engine", help="ray: spread over a Ray cluster, which sees the same directories")
    ] = Engine.local,
    ray_address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ray-address", metavar="ADDRESS", help="Of the cluster; default: $RAY_ADDRESS, else one here"),
    ] = None,
    connection: Connection,
) -> None:
    """Compare two runs or dumps. Ends with 0 where they agree within tolerance, with 1 where they do not."""
    common = connection.common(context)
    selected = where.arguments()
    options = judging.options(**matching.options(), mapping=mapped.mapping())
    from msprobe_client.output import Format

    chosen = common.format or Format.table
    if engine == Engine.ray and (showing.compatible or options.across_layouts):
        raise typer.BadParameter("--engine ray compares rank by rank; leave out --compatible and --across-layouts")
    if showing.compatible:
        if chosen not in (Format.table, Format.csv, Format.xlsx):
            raise typer.BadParameter("--compatible writes csv or xlsx", param_hint="--format")
        differs = _write_tables(common, target, golden, showing.output or Path("output"), chosen, options, selected)
    else:
        asked = {"options": options, **selected, **showing.arguments(chosen)}
        from msprobe_client.output import progress

        with progress.bar("compare", "files") as advance:
            notes: list[str] = []
            show = _Show(chosen, showing, asked, notes)
            heard: dict[str, Any] = {"progress": advance, "note": notes.append}
            if engine == Engine.ray:
                from msprobe_client.ray_engine import RayEngine

                with RayEngine(common.server, common.data_dir, ray_address) as spread:
                    differs = show(spread.compare(target, golden, **heard, **asked))
            else:
                with connected(common, target, golden) as client:
                    differs = show(client.compare(target, golden, **heard, **asked))
    if differs:
        raise typer.Exit(EXIT_DIFFERS)


def _write_tables(
    common: Common,
    target: str,
    golden: str,
    output: Path,
    chosen: Format,
    options: CompareOptions,
    selected: dict[str, Any],
) -> bool:
    from msprobe_client.compat.result_files import result_file_names
    from msprobe_client.compat.result_xlsx import ResultXlsx
    from msprobe_client.output import Format

    xlsx = chosen == Format.xlsx
    differs = False
    with connected(common, target, golden) as client:
        for report in client.compare_tables(
            target,
            golden,
            output,
            matching=options.matching,
            mapping=options.mapping,
            file_name=result_file_names("xlsx" if xlsx else "csv"),
            form=ResultXlsx(coloured=True) if xlsx else None,
            **selected,
        ):
            print(
                f"{report.path}: {report.rows} rows, {report.errors} errors, {report.warnings} warnings, "
                f"{report.target_only} without a partner"
            )
            differs = differs or bool(report.errors or report.warnings or report.target_only)
    return differs


class _Show:
    """Shows a comparison as it comes; called with it, says whether something differs. notes: grow as it comes."""

    def __init__(self, chosen: Format, showing: Showing, asked: dict[str, Any], notes: list[str]) -> None:
        self._format = chosen
        self._output = showing.output
        self._levels = [level.value for level in showing.roll_up or []]
        self._asked = asked
        self._notes = notes
        self._total: RollUp | None = None
        self._lonely: list[UnpairedStep] = []

    def __call__(self, found: Iterator[Found]) -> bool:
        from msprobe_client.commands import compared_rows
        from msprobe_client.output import write

        def ending() -> Ending:
            for _ in found:  # what comes after the last row
                pass
            return self._ending()

        if self._levels:
            rows = map(compared_rows.roll_up_row, self._roll_ups(found))
            write(
                self._format,
                compared_rows.ROLL_UP_COLUMNS,
                rows,
                self._output,
                compared_rows.mark_roll_up,
                ending=ending,
            )
        else:
            tensors = self._tensors(found)
            if self._worst_first:
                tensors = compared_rows.worst_first(tensors, self._asked["limit"])
            rows = map(compared_rows.tensor_row, tensors)
            columns = compared_rows.tensor_columns(layouts=self._asked["options"].across_layouts)
            write(self._format, columns, rows, self._output, compared_rows.mark_tensor, ending=ending)
        assert self._total is not None
        if self._total.rows == 0 and self._asked["name"]:
            raise NotFound(f"no record of either side is called {self._asked['name']}")
        return bool(self._total.differences or self._lonely)

    @property
    def _worst_first(self) -> bool:
        """Of a table everything is there before its first line; the other formats stream, step after step."""
        return bool(self._format.value == "table" and self._asked["order"] == "significance")

    def _tensors(self, found: Iterator[Found]) -> Iterator[ComparedTensor]:
        from msprobe_client.comparison import ComparedTensor

        return (item for item in map(self._kept, found) if isinstance(item, ComparedTensor))

    def _roll_ups(self, found: Iterator[Found]) -> Iterator[RollUp]:
        from msprobe_client.comparison import RollUp

        return (item for item in map(self._kept, found) if isinstance(item, RollUp) and item.level in self._levels)

    def _kept(self, item: Found) -> Found:
        from msprobe_client.comparison import RollUp, UnpairedStep

        if isinstance(item, UnpairedStep):
            self._lonely.append(item)
        elif isinstance(item, RollUp) and item.level == "run":
            self._total = item
        return item

    def _ending(self) -> Ending:
        from msprobe_client.commands import compared_rows
        from msprobe_client.output import Ending

        total = self._total
        assert total is not None
        partly = self._asked["rows"] == "different" and self._worst_first and self._asked["limit"]
        if self._format.value == "table" and self._output is None and sys.stdout.isatty():
            compared_rows.show_verdicts(total)
        return Ending(
            notes=[
                *compared_rows.summary(total, self._lonely, shown=self._asked["limit"] if partly else None),
                *self._notes,
            ],
            facts={"summary": compared_rows.roll_up_row(total), "unpaired": self._lonely},
        )

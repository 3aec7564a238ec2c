"""msprobe-client weights RUN [GOLDEN]"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common, usage
from msprobe_client.commands.tensor_tally import Tally, TensorGlob, both, parsed_rename
from msprobe_client.errors import FailedPrecondition

if TYPE_CHECKING:
    from msprobe_client.output import Mark
    from msprobe_client.weight_differences import OpenedWeights, WeightDifference, WeightsPlace

EXAMPLES = (
    "msprobe-client weights tuesday monday",
    "msprobe-client weights tuesday published.safetensors --all",
)

Step = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--step", min=0, max=2**32 - 1, help="Default: the last that has weights", show_default=False),
]
GoldenStep = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--golden-step", min=0, max=2**32 - 1, help="Default: the run's step, or the last", show_default=False
    ),
]
OneRank = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--rank", metavar="RANK", help="0, rank0 or proc123. Default: all, shards put together"),
]
GoldenRank = Annotated[Optional[str], typer.Option("--golden-rank", metavar="RANK", help="Of the golden run")]  # noqa: UP045


def run(
    context: typer.Context,
    run: RunName,
    golden: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            help="A run, or the path of a checkpoint. Without it the ranks of RUN are compared", show_default=False
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show tensors that are equal, too")] = False,
    step: Step = None,
    golden_step: GoldenStep = None,
    rank: OneRank = None,
    golden_rank: GoldenRank = None,
    name: TensorGlob = None,
    rename: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--rename", metavar="FROM=TO", help="How names of RUN begin, and those of the golden side"),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Compare weights that debugger.weights() recorded, by digests. Ends with 0 if all are equal, else with 1."""
    options = common(context, server, data_dir, output_format)
    renames = [parsed_rename(text) for text in rename or []]
    from msprobe_client.output import Column, Format, progress, show, write
    from msprobe_client.weight_differences import AGREEING, WeightsPlace

    target = WeightsPlace(run, None, step, _rank(rank, "--rank"))
    against = _golden(run if golden is None else golden, golden_step, golden_rank)
    columns = (
        Column("verdict", "VERDICT", kind="text"),
        Column("name", "NAME", kind="text"),
        Column("golden_name", "", in_table=False, kind="text"),
        Column("dtype", "DTYPE", kind="text"),
        Column("shape", "SHAPE", kind="text"),
        Column("ranks", "RANKS", show.ranks),
        Column("golden_ranks", "", show.ranks, in_table=False),
        Column("digest", "", in_table=False, kind="text"),
        Column("golden_digest", "", in_table=False, kind="text"),
        Column("step", "", in_table=False, kind="int"),
        Column("other", "", in_table=False, kind="text"),
        Column("said", "WHAT", kind="text"),
    )
    tally: Tally[OpenedWeights] = Tally(AGREEING, every=every)
    with options.connect() as client, progress.bar("weights", "tensors") as advance:
        found = client.checkpoints.weights(
            target,
            against,
            name=name,
            renames=renames,
            opened=tally.sides.append,
            note=tally.notes.append,
            progress=advance,
        )

        def others() -> Iterator[WeightDifference]:
            for number, item in enumerate(found):
                if golden is None and number == 0:
                    _refuse_itself(run, tally.sides)
                yield item

        rows = map(_row, tally.shown(others()))
        write(options.format or Format.table, columns, rows, None, _mark, ending=partial(tally.ending, _facts, _shown))
    tally.end()


def _refuse_itself(run: str, sides: list[OpenedWeights]) -> None:
    first, second = sides
    if len(first.ranks) == 1 and (first.ranks, first.step) == (second.ranks, second.step):
        raise FailedPrecondition(
            f"run {run} has weights of one rank, {first.ranks[0]}; name a golden run or checkpoint to compare with"
        )


def _rank(text: str | None, option: str) -> Any:
    from msprobe_client.model import Rank

    return None if text is None else usage(Rank.parse, text, option)


def _golden(text: str, step: int | None, rank: str | None) -> WeightsPlace:
    from msprobe_client.weight_differences import WeightsPlace

    path = Path(text)
    if not path.exists():
        return WeightsPlace(text, None, step, _rank(rank, "--golden-rank"))
    for option, value in (("--golden-step", step), ("--golden-rank", rank)):
        if value is not None:
            raise typer.BadParameter(f"{text} is a checkpoint; it should be a run", param_hint=option)
    return WeightsPlace("", path)


def _mark(row: Any) -> Mark:
    return "" if row["verdict"] in ("equal", "cast") else "bad"


def _facts(side: OpenedWeights) -> dict[str, Any]:
    return {
        "place": side.place,
        "layout": side.layout,
        "step": side.step,
        "tensors": side.tensors,
        "ranks": [str(rank) for rank in side.ranks],
    }


def _shown(side: OpenedWeights) -> str:
    from msprobe_client.output import show

    where = side.layout if side.step is None else f"step {side.step}, {show.ranks(side.ranks)}"
    return f"{side.place}: {where}, {side.tensors} tensors"


def _row(item: WeightDifference) -> dict[str, Any]:
    target, golden = item.target, item.golden
    return {
        "verdict": item.kind,
        "name": item.name,
        "golden_name": golden.name if golden else "",
        "dtype": both(target.dtype if target else "", golden.dtype if golden else ""),
        "shape": both(str(list(target.shape)) if target else "", str(list(golden.shape)) if golden else ""),
        "ranks": target.ranks if target else (),
        "golden_ranks": golden.ranks if golden else (),
        "digest": target.digest if target else "",
        "golden_digest": golden.digest if golden else "",
        "step": item.step,
        "other": item.other,
        "said": item.said(),
    }

"""msprobe-client checkpoint-diff TARGET GOLDEN"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import OutputFormat, PolicyName, common
from msprobe_client.commands.tensor_tally import Tally, TensorGlob, both, parsed_rename

if TYPE_CHECKING:
    from msprobe_client.checkpoint_diff import CheckpointDifference, CheckpointTensor, OpenedCheckpoint
    from msprobe_client.output import Mark

EXAMPLES = (
    "msprobe-client checkpoint-diff trained.safetensors published.safetensors",
    "msprobe-client checkpoint-diff trained.safetensors published.safetensors --all --format csv",
)

Side = Annotated[Path, typer.Argument(help="A file or a directory; docs/checkpoints.md lists layouts", exists=True)]


def run(
    context: typer.Context,
    target: Side,
    golden: Side,
    every: Annotated[bool, typer.Option("--all", help="Show tensors that are equal or close, too")] = False,
    policy: Annotated[
        PolicyName, typer.Option("--policy", help="What is close; see docs/checking.md")
    ] = PolicyName.default,
    name: TensorGlob = None,
    rename: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--rename", metavar="FROM=TO", help="How names of the target begin, and those of the golden"),
    ] = None,
    optimizer: Annotated[
        bool, typer.Option("--optimizer", help="Take in optimizer state and what else the files hold")
    ] = False,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="A file instead of stdout")] = None,  # noqa: UP045
    output_format: OutputFormat = None,
) -> None:
    """Compare the tensors of two checkpoints. Ends with 0 if all are equal or close, with 1 if some are not."""
    options = common(context, None, None, output_format)
    renames = [parsed_rename(text) for text in rename or []]
    from msprobe_client.checkpoint_diff import AGREEING
    from msprobe_client.client import Client
    from msprobe_client.output import Column, Format, progress, show, write
    from msprobe_client.scratch import scratch_directory

    columns = (
        Column("verdict", "VERDICT", kind="text"),
        Column("name", "NAME", kind="text"),
        Column("golden_name", "", in_table=False, kind="text"),
        Column("dtype", "DTYPE", kind="text"),
        Column("golden_dtype", "", in_table=False, kind="text"),
        Column("shape", "SHAPE", kind="text"),
        Column("golden_shape", "", in_table=False, kind="text"),
        Column("elements", "", in_table=False, kind="int"),
        Column("different", "DIFFERENT", right=True, kind="int"),
        Column("l2", "L2", show.number, right=True, kind="float"),
        Column("cosine", "COSINE", show.number, right=True, kind="float"),
        Column("max_abs", "MAX ABS", show.number, right=True, kind="float"),
        Column("max_rel", "MAX REL", show.number, right=True, kind="float"),
        Column("hash", "", in_table=False, kind="text"),
        Column("golden_hash", "", in_table=False, kind="text"),
        Column("rule", "", in_table=False, kind="text"),
        Column("measured", "", in_table=False, kind="float"),
        Column("limit", "", in_table=False, kind="float"),
        Column("note", "NOTE", kind="text"),
    )
    tally: Tally[OpenedCheckpoint] = Tally(AGREEING, every=every)
    with (
        scratch_directory() as scratch,
        Client(data_dir=scratch, create=True) as client,
        progress.bar("checkpoint-diff", "tensors") as advance,
    ):
        found = client.checkpoints.diff(
            target,
            golden,
            policy=policy.value,
            name=name,
            renames=renames,
            optimizer=optimizer,
            opened=tally.sides.append,
            note=tally.notes.append,
            progress=advance,
        )
        rows = map(_row, tally.shown(found))
        ending = partial(tally.ending, _facts, lambda side: f"{side.path}: {side.layout}, {side.tensors} tensors")
        write(options.format or Format.table, columns, rows, output, _mark, ending=ending)
    tally.end()


def _facts(side: OpenedCheckpoint) -> dict[str, Any]:
    return {"path": side.path, "layout": side.layout, "tensors": side.tensors}


def _mark(row: Any) -> Mark:
    return "doubtful" if row["verdict"] == "close" else "" if row["verdict"] == "equal" else "bad"


def _row(item: CheckpointDifference) -> dict[str, Any]:
    def of(side: CheckpointTensor | None) -> tuple[str, str, str, str]:
        return (side.name, side.dtype, str(list(side.shape)), side.hash) if side else ("", "", "", "")

    name, dtype, shape, digest = of(item.target)
    golden_name, golden_dtype, golden_shape, golden_digest = of(item.golden)
    measured = item.kind not in ("shape", "only-target", "only-golden")
    return {
        "verdict": item.kind,
        "name": name or golden_name,
        "golden_name": golden_name,
        "dtype": both(dtype, golden_dtype),
        "golden_dtype": golden_dtype,
        "shape": both(shape, golden_shape),
        "golden_shape": golden_shape,
        "elements": item.elements,
        "different": item.different if measured else None,
        "l2": item.l2 if measured else None,
        "cosine": item.cosine if measured else None,
        "max_abs": item.max_abs if measured else None,
        "max_rel": item.max_rel if measured else None,
        "hash": digest,
        "golden_hash": golden_digest,
        "rule": item.rule,
        "measured": item.measured if item.rule else None,
        "limit": item.limit if item.rule else None,
        "note": item.note,
    }

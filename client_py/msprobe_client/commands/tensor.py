"""msprobe-client tensor RUN NAME [-o FILE]"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Selection, Server, common
from msprobe_client.commands.sides import connected

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.model import Rank
    from msprobe_client.tensors import TensorPreview

_PART = re.compile(r"(?P<start>-?[0-9]+)?(?P<colon>:)?(?P<stop>-?[0-9]+)?(?::(?P<step>[0-9]+)?)?")
_BAR = 40

EXAMPLES = (
    "msprobe-client tensor tuesday Functional.linear.0.forward.input.1 --step 3 --rank 0",
    "msprobe-client tensor tuesday Functional.linear.0.forward.input.1 --step 3 --rank 0 --slice '0, :8' -o row.npy",
)


def run(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run; without --output a dump directory, too", show_default=False)
    ],
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="As `records` shows it: Functional.linear.0.forward.input.1"),
    ],
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE", help="FILE.pt or FILE.npy; without it a preview is shown"),
    ] = None,
    part: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--slice", metavar="SLICES", help="A part, as Python has it: '0, 2:8, ::4'; the rest is not read"),
    ] = None,
    step: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--step", min=0, help="Needed where several steps hold the name", show_default=False),
    ] = None,
    rank: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--rank", metavar="RANK", help="Needed where several ranks hold the name", show_default=False),
    ] = None,
    bins: Annotated[int, typer.Option("--bins", min=1, max=1000, help="Of the preview's histogram")] = 20,
    top: Annotated[int, typer.Option("--top", min=1, max=1000, help="Elements at each end in the preview")] = 5,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Show what a stored tensor holds, or write it or a part of it to a file."""
    options = common(context, server, data_dir, output_format)
    ranks = Selection(None, [rank] if rank is not None else None).ranks
    slices = (
        [] if part is None else [_slice(text) for text in part.strip().removeprefix("[").removesuffix("]").split(",")]
    )
    for suffix in (".pt", ".npy"):
        name = name.removesuffix(suffix)  # a file's name is taken too
    if output is None:
        if slices:
            raise typer.BadParameter("a part is written to a file; give --output FILE", param_hint="--slice")
        with connected(options, run) as client:
            place = (step, ranks[0]) if step is not None and ranks else _place(client, run, name, step, ranks)
            preview = client.preview(run, name, step=place[0], rank=place[1], bins=bins, top=top)
        _tell(preview, options.format)
        return
    if output.suffix not in (".pt", ".npy"):
        raise typer.BadParameter(f"{output}: a tensor is written as .pt or .npy", param_hint="--output")
    from msprobe_client.output import progress

    with options.connect() as client, progress.bar(name, "bytes") as advance:
        written = client.tensor(
            run, name, output, step=step, rank=ranks[0] if ranks else None, slices=slices, progress=advance
        )
    from msprobe_client.output import Column, Ending, Format, write

    ending = Ending(shown=[str(written)])
    write(
        options.format or Format.table, [Column("file", "", in_table=False)], [{"file": written}], ending=lambda: ending
    )


def _slice(text: str) -> slice | int:
    match = _PART.fullmatch(text.strip())
    if match is None or not text.strip() or match["step"] == "0":
        raise typer.BadParameter(
            f"{text.strip()!r} is not a part of a dimension; write 3, 2:8, :8, 2:, : or ::4", param_hint="--slice"
        )
    start, stop, step = (int(match[part]) if match[part] else None for part in ("start", "stop", "step"))
    if not match["colon"]:
        assert start is not None
        return start
    return slice(start, stop, step)


def _place(client: Client, source: str, name: str, step: int | None, ranks: list[Rank]) -> tuple[int, Rank]:
    """The only step and rank with the tensor."""
    from msprobe_client.errors import FailedPrecondition, NotFound

    literal = re.sub(r"([*?\[])", r"[\1]", name)
    steps = [(step, step)] if step is not None else []
    found = list(
        dict.fromkeys((item.step, item.rank) for item in client.find(source, name=literal, steps=steps, ranks=ranks))
    )
    if not found:
        raise NotFound(f"{source} has no tensor {name} there")
    if len(found) > 1:
        places = ", ".join(f"step {number} {each}" for number, each in found[:10])
        raise FailedPrecondition(f"several steps or ranks hold {name}; give --step and --rank of one of: {places}")
    return found[0]


def _tell(preview: TensorPreview, chosen: Any) -> None:
    from msprobe_client.output import Column, Ending, Format, write

    row = {field: getattr(preview, field) for field in preview.__dataclass_fields__}
    columns = [Column(field, "", in_table=False) for field in row]
    write(chosen or Format.table, columns, [row], ending=lambda: Ending(shown=list(_told(preview))))


def _told(preview: TensorPreview) -> Iterator[str]:
    from msprobe_client.output import show

    yield f"{preview.dtype} {show.shape(preview.shape)}: {preview.elements} elements, {preview.finite} finite"
    if preview.finite != preview.elements:
        yield f"NaN {preview.nan_count}, +Inf {preview.positive_inf_count}, -Inf {preview.negative_inf_count}"
    numbers = ("max", "min", "mean", "std", "norm")
    yield "  ".join(f"{each} {_number(getattr(preview, each))}" for each in numbers) + f"  zeros {preview.zero_count}"
    max_count = max(preview.bin_counts, default=0)
    edges = [f"{edge:.4g}" for edge in preview.bin_edges]
    width = max(map(len, edges), default=0)
    for low, high, count in zip(edges, edges[1:], preview.bin_counts, strict=False):
        yield f"{low:>{width}} .. {high:>{width}}  {'█' * round(_BAR * count / max_count):<{_BAR}}  {count}"
    for title, elements in (
        ("largest", preview.largest),
        ("smallest", preview.smallest),
        ("not finite", preview.first_non_finite),
    ):
        if elements:
            yield f"{title}: " + ", ".join(f"{show.number(item.value)} at {list(item.index)}" for item in elements)


def _number(value: float | None) -> str:
    from msprobe_client.output import show

    return "-" if value is None else show.number(value)

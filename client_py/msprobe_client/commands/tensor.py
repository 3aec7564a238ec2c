"""msprobe-client tensor show | stats | diff | convert"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperGroup

from msprobe_client.commands.mixins import expanded, mixin
from msprobe_client.commands.options import Common, Connection, DataDir, OutputFormat, Selection, Server, common
from msprobe_client.commands.sides import Atol, Rtol, connected
from msprobe_client.examples import epilog
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.model import Rank
    from msprobe_client.output import Column
    from msprobe_client.tensor_files import TensorDiff, TensorFiles, TensorPlace, TensorsInFile
    from msprobe_client.tensors import TensorPreview

_PART = re.compile(r"(?P<start>-?[0-9]+)?(?P<colon>:)?(?P<stop>-?[0-9]+)?(?::(?P<step>[0-9]+)?)?")
_STORED = re.compile(r"(?P<run>.+)/step(?P<step>[0-9]{1,10})/(?P<rank>(?:rank|proc)[0-9]+)/(?P<name>[^/]+)")
_BAR = 40


class _Group(TyperGroup):
    """`tensor RUN NAME` is `tensor show RUN NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Group,
    help="Tensors of runs and of files: .npy, .pt, .safetensors, ATB's .bin, kernel dumps. docs/tensors.md",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OneTensor = Annotated[
    str,
    typer.Argument(metavar="TENSOR", help="A file, or RUN/step3/rank0/NAME of a server", show_default=False),
]
InFile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--name", metavar="NAME", help="Of the tensor in a file that has several", show_default=False),
]


@mixin
class Layout:
    """How a device keeps the elements, and how they are wanted."""

    stored: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--from", metavar="LAYOUT", help="Layout in the file; default: as it says, else ND"),
    ] = None
    to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--to", metavar="LAYOUT", help="ND, NCHW, NZ, NC1HWC0, FRACTAL_Z, ...; default: as it is stored"),
    ] = None
    shape: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--shape", metavar="SIZES", help="Sizes without blocks: 3,18,2,5; default: as the file says"),
    ] = None
    block: Annotated[int, typer.Option("--block", min=0, max=1024, help="C0 to make; 0: 32 bytes, 16 elements")] = 0

    def of(self, path: Path, name: str | None) -> TensorPlace:
        from msprobe_client.tensor_files import TensorPlace

        return TensorPlace(path, name or "", self.stored or "", self.to or "", _sizes(self.shape), self.block)


def _sizes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = text.strip().removeprefix("[").removesuffix("]").split(",")
    if not all(part.strip().isdecimal() and len(part.strip()) < 19 for part in parts):
        raise typer.BadParameter(f"{text!r} is no shape; write 3,18,2,5", param_hint="--shape")
    return tuple(int(part) for part in parts)


@contextmanager
def _files(options: Common, *tensors: str) -> Iterator[tuple[TensorFiles, list[Path]]]:
    """A server of one's own for files, and where each tensor lies: one of a run is fetched first."""
    from msprobe_client.client import Client
    from msprobe_client.scratch import scratch_directory

    with ExitStack() as held:
        paths = []
        for number, tensor in enumerate(tensors):
            stored = None if Path(tensor).exists() else _STORED.fullmatch(tensor)
            if stored is None:
                paths.append(Path(tensor))
                continue
            fetched = Path(held.enter_context(scratch_directory())) / f"{number}.pt"
            with options.connect() as client:
                client.tensor(
                    stored["run"], stored["name"], fetched, step=int(stored["step"]), rank=_rank(stored["rank"])
                )
            paths.append(fetched)
        scratch = held.enter_context(scratch_directory())
        yield held.enter_context(Client(data_dir=scratch, create=True)).tensor_files, paths


def _rank(text: str) -> Rank:
    return Selection(None, [text]).ranks[0]


def show(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file, or a run (without --output a dump directory, too), or RUN/step3/rank0/NAME",
            show_default=False,
        ),
    ],
    layout: Layout,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="NAME", help="As `records` shows it: Functional.linear.0.forward.input.1; or a file's"),
    ] = None,
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
    """Show what a tensor holds, or write one of a run, or a part, to a file. Of a file with several: their list."""
    options = common(context, server, data_dir, output_format)
    if Path(source).is_file() and Path(source).suffix != ".json":
        if output is not None or part is not None:
            raise typer.BadParameter(f"{source} is a file; use msprobe-client tensor convert", param_hint="--output")
        _show_file(options, layout.of(Path(source), name), bins, top)
        return
    if layout != Layout():
        raise typer.BadParameter(f"layouts are those of files, and {source} is none", param_hint="--from, --to")
    stored = _STORED.fullmatch(source) if name is None else None
    if stored is not None:
        source, name, step, rank = stored["run"], stored["name"], int(stored["step"]), stored["rank"]
    if name is None:
        raise typer.BadParameter(f"{source} is no file here; for a run give the name of a tensor, too")
    ranks = Selection(None, [rank] if rank is not None else None).ranks
    slices = (
        [] if part is None else [_slice(text) for text in part.strip().removeprefix("[").removesuffix("]").split(",")]
    )
    for suffix in (".pt", ".npy"):
        name = name.removesuffix(suffix)  # a file's name is taken too
    if output is None:
        if slices:
            raise typer.BadParameter("a part is written to a file; give --output FILE", param_hint="--slice")
        with connected(options, source) as client:
            place = (step, ranks[0]) if step is not None and ranks else _place(client, source, name, step, ranks)
            preview = client.preview(source, name, step=place[0], rank=place[1], bins=bins, top=top)
        _tell(preview, options.format)
        return
    if output.suffix not in (".pt", ".npy"):
        raise typer.BadParameter(f"{output}: a tensor is written as .pt or .npy", param_hint="--output")
    from msprobe_client.output import progress

    with options.connect() as client, progress.bar(name, "bytes") as advance:
        written = client.tensor(
            source, name, output, step=step, rank=ranks[0] if ranks else None, slices=slices, progress=advance
        )
    _wrote(options, written)


def stats(
    context: typer.Context,
    tensors: Annotated[
        list[str],
        typer.Argument(metavar="TENSOR...", help="Files, or RUN/step3/rank0/NAME of a server", show_default=False),
    ],
    layout: Layout,
    connection: Connection,
    name: InFile = None,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="A file instead of stdout")] = None,  # noqa: UP045
) -> None:
    """Show the statistics of tensors, a row for each; of a file with several, of all."""
    options = connection.common(context)
    from msprobe_client.output import Format, progress, write

    with _files(options, *tensors) as (files, paths), progress.bar("stats", "tensors") as advance:

        def rows() -> Iterator[dict[str, Any]]:
            done = 0
            for said, path in zip(tensors, paths, strict=True):
                for place in files.named(layout.of(path, name)):
                    preview = files.preview(place, bins=1, top=1)
                    row = {field: getattr(preview, field) for field in preview.__dataclass_fields__}
                    done += 1
                    advance(done, 0)
                    yield {"source": said, "name": place.name, **row, "shape": str(list(preview.shape))}

        write(options.format or Format.table, _statistics(), rows(), output)


def _statistics() -> list[Column]:
    from msprobe_client.output import Column

    numbers = ("max", "min", "mean", "std", "norm")
    return [
        Column("source", "SOURCE", kind="text"),
        Column("name", "NAME", kind="text"),
        Column("dtype", "DTYPE", kind="text"),
        Column("shape", "SHAPE", kind="text"),
        *(Column(each, each.upper(), _number, right=True, kind="float") for each in numbers),
        Column("elements", "", in_table=False, kind="int"),
        Column("nan_count", "NaN", right=True, kind="int"),
        Column("positive_inf_count", "+Inf", right=True, kind="int"),
        Column("negative_inf_count", "-Inf", right=True, kind="int"),
        Column("zero_count", "ZEROS", right=True, kind="int"),
    ]


def diff(
    context: typer.Context,
    target: OneTensor,
    golden: OneTensor,
    layout: Layout,
    connection: Connection,
    name: InFile = None,
    golden_name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--golden-name", metavar="NAME", help="In the golden file; default: as --name, if it has names"),
    ] = None,
    golden_from: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--golden-from", metavar="LAYOUT", help="Layout in the golden file; --from is the target's"),
    ] = None,
    rtol: Rtol = None,
    atol: Atol = None,
    top: Annotated[int, typer.Option("--top", min=0, max=1000, help="Worst elements to show")] = 5,
) -> None:
    """Compare two tensors. Ends with 0 if they are equal or close, with 1 if not. --to is for both sides; one that has
    the layout stays as it is."""
    options = connection.common(context)
    from msprobe_client.output import Ending, Format, write

    with _files(options, target, golden) as (files, (ours, theirs)):
        ours_place = layout.of(ours, name)
        theirs_place = replace(
            layout.of(theirs, golden_name or _name_in(files, theirs, name)), stored=golden_from or ""
        )
        found = files.diff(ours_place, theirs_place, rtol=rtol, atol=atol, top=top)
    row = _diff_row(found)
    columns = [_hidden(field) for field in row]
    write(options.format or Format.table, columns, [row], ending=lambda: Ending(shown=list(_diff_told(found, row))))
    if found.kind not in ("equal", "close"):
        raise typer.Exit(EXIT_DIFFERS)


def _name_in(files: TensorFiles, path: Path, name: str | None) -> str | None:
    """None where the file is one tensor, without a name."""
    return name if name is None or any(each.name for each in files.listed(path).tensors) else None


def _hidden(name: str) -> Column:
    from msprobe_client.output import Column

    return Column(name, "", in_table=False)


def _diff_row(found: TensorDiff) -> dict[str, Any]:
    row: dict[str, Any] = {"verdict": found.kind}
    for side, of in (("", found.target), ("golden_", found.golden)):
        row |= {f"{side}dtype": of.dtype, f"{side}shape": of.shape, f"{side}layout": of.layout}
    row |= {"rtol": found.rtol, "atol": found.atol}
    if found.metrics is not None:
        row |= {
            field.name: getattr(found.metrics, field.name)
            for field in found.metrics.DESCRIPTOR.fields
            if not field.name.startswith("worst_")
            and (not field.has_presence or field.message_type or found.metrics.HasField(field.name))  # type: ignore[arg-type]
        }
    worst = [{"index": each.index, "target": each.target, "golden": each.golden} for each in found.worst]
    return {**row, "worst": worst}


def _diff_told(found: TensorDiff, row: dict[str, Any]) -> Iterator[str]:
    from msprobe_client.output import show as shown

    yield found.kind
    for title, side in (("target", found.target), ("golden", found.golden)):
        yield f"{title}: {side.dtype} {shown.shape(side.shape)} {side.layout}"
    if found.metrics is None:
        return
    numbers = ("max_abs", "mean_abs", "max_rel", "mean_rel", "cosine", "euclidean")
    yield "  ".join(f"{each} {shown.number(row[each])}" for each in numbers)
    counts = ("elements", "different", "over_tolerance", "nan_mismatches", "inf_mismatches", "inf_sign_mismatches")
    yield "  ".join(f"{each} {row[each]}" for each in counts)
    yield f"rtol {shown.number(found.rtol)}  atol {shown.number(found.atol)}"
    for each in found.worst:
        yield f"at {list(each.index)}: {shown.number(each.target)}, golden {shown.number(each.golden)}"


def convert(
    context: typer.Context,
    tensor: OneTensor,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help=".npy, .pt, .safetensors or .txt", show_default=False),
    ],
    layout: Layout,
    connection: Connection,
    name: InFile = None,
) -> None:
    """Write a tensor as another file, or in another layout. A .safetensors takes all tensors of a file."""
    options = connection.common(context)
    from msprobe_client.output import progress

    with _files(options, tensor) as (files, (path,)), progress.bar(output.name, "bytes") as advance:
        written = files.convert(layout.of(path, name), output, progress=advance)
    _wrote(options, written)


for _run, _examples in (
    (
        show,
        (
            "msprobe-client tensor show tuesday Functional.linear.0.forward.input.1 --step 3 --rank 0",
            "msprobe-client tensor tuesday Functional.linear.0.forward.input.1 --step 3 --rank 0 "
            "--slice '0, :8' -o row.npy",
            "msprobe-client tensor show row.npy",
            "msprobe-client tensor show trained.safetensors",
        ),
    ),
    (stats, ("msprobe-client tensor stats trained.safetensors published.safetensors --format csv",)),
    (
        diff,
        (
            "msprobe-client tensor diff trained.safetensors published.safetensors",
            "msprobe-client tensor diff tuesday/step3/rank0/Functional.linear.0.forward.output.0 "
            "monday/step3/rank0/Functional.linear.0.forward.output.0",
        ),
    ),
    (
        convert,
        (
            "msprobe-client tensor convert trained.safetensors -o trained.npy",
            "msprobe-client tensor convert tuesday/step3/rank0/Functional.linear.0.forward.input.1 "
            "-o weight.npy --to NZ",
            "msprobe-client tensor convert weight.npy -o plain.npy --from NZ --to ND --shape 4,8",
        ),
    ),
):
    app.command(_run.__name__, epilog=epilog(list(_examples)))(expanded(_run))


def _wrote(options: Common, path: Path) -> None:
    from msprobe_client.output import Ending, Format, write

    ending = Ending(shown=[str(path)])
    write(options.format or Format.table, [_hidden("file")], [{"file": path}], ending=lambda: ending)


def _show_file(options: Common, place: TensorPlace, bins: int, top: int) -> None:
    with _files(options, str(place.path)) as (files, _):
        listed = files.listed(place.path) if not place.name else None
        if listed is not None and len(listed.tensors) > 1:
            _tell_list(listed, options.format)
        else:
            _tell(files.preview(place, bins=bins, top=top), options.format)


def _tell_list(listed: TensorsInFile, chosen: Any) -> None:
    from msprobe_client.output import Column, Ending, Format, show, write

    columns = (
        Column("name", "NAME", kind="text"),
        Column("dtype", "DTYPE", kind="text"),
        Column("shape", "SHAPE", show.shape),
        Column("layout", "LAYOUT", kind="text"),
        Column("sizes", "SIZES", lambda sizes: show.shape(sizes) if sizes else ""),
    )
    rows = [{column.name: getattr(each, column.name) for column in columns} for each in listed.tensors]
    ending = Ending(notes=listed.notes, facts={"kind": listed.kind})
    write(chosen or Format.table, columns, rows, ending=lambda: ending)


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

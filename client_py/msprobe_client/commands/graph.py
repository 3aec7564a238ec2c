"""msprobe-client graph TARGET [GOLDEN] -o OUT"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, Selection, Server, Steps, common
from msprobe_client.commands.sides import SourceOf, connected

EXAMPLES = (
    "msprobe-client graph tuesday -o graphs",
    "msprobe-client graph dump_a dump_b --overflow -o graphs/pair.vis.db",
    "msprobe-client graph tuesday --follow -o graphs/live.vis.db",
    "msprobe-client graph dump_a dump_b --to model-explorer -o explorer",
)


class To(str, Enum):
    tensorboard = "tensorboard"
    model_explorer = "model-explorer"


def run(
    context: typer.Context,
    target: SourceOf,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A directory, or a file NAME.vis.db; for Model Explorer a directory",
            show_default=False,
        ),
    ],
    golden: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Beside it: a run, a dump directory, or a dump.json", show_default=False),
    ] = None,
    step: Steps = None,
    rank: Ranks = None,
    overflow: Annotated[
        bool, typer.Option("--overflow", help="Mark operations by how badly NaN and infinity hit them")
    ] = False,
    fuzzy: Annotated[
        bool, typer.Option("--fuzzy", help="Match operations in a module by name without the call's number, in order")
    ] = False,
    layer_mapping: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Paths of modules by class: {class: {target: golden}}", show_default=False),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Of a run: add steps as they complete, until the run has ended")
    ] = False,
    to: Annotated[To, typer.Option("--to", help="Which program shows it")] = To.tensorboard,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Write modules and operations as a graph for TensorBoard or Model Explorer, of one side or of two."""
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    from msprobe_client import name_mapping
    from msprobe_client.analysis_client import is_path
    from msprobe_client.errors import InvalidArgument

    if follow and is_path(target):
        raise InvalidArgument(f"--follow is for a run of a server, and {target} is a dump directory")
    if follow and to is To.model_explorer:
        raise InvalidArgument("--follow is for TensorBoard: leave out --to")
    if follow and step is not None:
        raise InvalidArgument("--follow shows all steps of a run: leave out --step")
    from msprobe_client.output import Column, Ending, Format, progress, show, tell, warn, write
    from msprobe_client.vis_file import other_graphs, vis_file

    layers = name_mapping.layers(layer_mapping) if layer_mapping else None
    sides = (target,) if golden is None else (target, golden)
    chosen: dict[str, Any] = {"matching": "fuzzy" if fuzzy else "exact", "overflow": overflow, "layers": layers}
    if to is To.model_explorer:
        if output.is_file():
            raise InvalidArgument(f"{output} is a file; name a directory")
        with connected(options, *sides) as client, progress.bar("graph", "files") as advance:
            written = client.model_explorer(
                target, output, golden, steps=selection.ranges, ranks=selection.ranks, progress=advance, **chosen
            )
        for text in written.warnings:
            warn(text, str(context.find_root().info_name))
        sizes = [{"path": path, "bytes": Path(path).stat().st_size} for path in written.files]
        files = (Column("path", "FILE"), Column("bytes", "BYTES", show.size, right=True))
        left_out = [*map(str, written.unpaired)]
        write(options.format or Format.table, files, sizes, ending=lambda: Ending(notes=left_out))
        return
    file = vis_file(output, compare=golden is not None)
    with connected(options, *sides) as client, progress.bar("graph", "files") as advance:
        chosen |= {"ranks": selection.ranks, "progress": advance}

        def told(line: str) -> None:
            tell(line, str(context.find_root().info_name))

        reports = (
            client.follow_graph(target.removeprefix("run:"), file, golden=golden, tell=told, **chosen)
            if follow
            else iter([client.graph(target, file, golden, steps=selection.ranges, **chosen)])
        )
        unpaired: list[str] = []

        def rows() -> Iterator[dict[str, object]]:
            for report in reports:
                for text in report.warnings:
                    warn(text, str(context.find_root().info_name))
                unpaired.extend(map(str, report.unpaired))
                yield {"path": report.path, "steps": report.steps, "ranks": report.ranks, "bytes": report.bytes}

        columns = (
            Column("path", "FILE"),
            Column("steps", "STEPS", right=True),
            Column("ranks", "RANKS", right=True),
            Column("bytes", "BYTES", show.size, right=True),
        )
        write(options.format or Format.table, columns, rows(), live=follow, ending=lambda: Ending(notes=unpaired))
    for text in other_graphs(file):
        warn(text, str(context.find_root().info_name))

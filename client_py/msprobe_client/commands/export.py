"""msprobe-client export RUN --output DIR"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, RunName, Selection, Server, Steps, common
from msprobe_client.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from msprobe_client.client import Client, Progress
    from msprobe_client.model import StepSummary
    from msprobe_client.output import Column

EXAMPLES = (
    "msprobe-client export tuesday --output dump",
    "msprobe-client export tuesday --output part --step 3-5 --rank 0 --no-tensors",
    "msprobe-client export tuesday --to vis --output graphs",
)


class Engine(str, Enum):
    local = "local"
    queue = "queue"


def run(
    context: typer.Context,
    run: RunName,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="step{N}/rank{R}, or the other format's files, appear in it; may name a database",
            show_default=False,
        ),
    ],
    step: Steps = None,
    rank: Ranks = None,
    extended: Annotated[
        bool, typer.Option("--extended", help="Add variance, counts and finite-only statistics to dump.json")
    ] = False,
    strict_json: Annotated[
        bool, typer.Option("--strict-json", "--strict_json", help="Write null for NaN and Infinity")
    ] = False,
    no_tensors: Annotated[
        bool, typer.Option("--no-tensors", "--no_tensors", help="Leave dump_tensor_data out")
    ] = False,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="dump: directories; vis: graph.vis.db, and trend: steps.trend.db, for TensorBoard; grad_probe: the "
            "files of that task; model-explorer: Graph JSON and node data",
        ),
    ] = "dump",
    force: Annotated[bool, typer.Option("--force", help="Replace what exists already")] = False,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="queue: by workers (msprobe-client worker), which see the same directory"),
    ] = Engine.local,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Write a run as dump directories that mindstudio-probe reads, or for TensorBoard or Model Explorer.

    Each directory, and each file outside of one, appears whole.
    """
    options = common(context, server, data_dir, output_format)
    selection = Selection(step, rank)
    from msprobe_client.errors import InvalidArgument
    from msprobe_client.output import Column, Format, progress, show, write

    if engine == Engine.queue and to != "dump":
        raise InvalidArgument(f"--engine queue is for dumps, not for {to}: leave out one of them")

    with options.connect() as client, progress.bar(f"export {run}", "files") as advance:
        if engine == Engine.queue:
            chosen = selection.of(run, client.steps(run))
            asked = {"extended": extended, "strict_json": strict_json, "tensors": not no_tensors}
            directories = _by_workers(client, run, output, chosen, force, asked, advance)
            write(options.format or Format.table, _columns(), directories)
            return
        chosen = selection.of(run, client.steps(run)) if step or rank else []
        report = client.export(
            run,
            output,
            steps=sorted({item.step for item in chosen}) if step else (),
            ranks=selection.ranks,
            extended=extended,
            strict_json=strict_json,
            tensors=not no_tensors,
            to=to,
            force=force,
            progress=advance,
        )
    if to != "dump":
        sizes = [{"path": str(file), "bytes": file.stat().st_size} for file in report.directories]
        columns = (Column("path", "FILE"), Column("bytes", "BYTES", show.size, right=True))
        write(options.format or Format.table, columns, sizes)
        return
    rows = []
    for directory in report.directories:
        files = [file for file in directory.rglob("*") if file.is_file()] if directory.is_dir() else [directory]
        rows.append(
            {"directory": str(directory), "files": len(files), "bytes": sum(file.stat().st_size for file in files)}
        )
    write(options.format or Format.table, _columns(), rows)


def _columns() -> tuple[Column, ...]:
    from msprobe_client.output import Column, show

    return (
        Column("directory", "DIRECTORY"),
        Column("files", "FILES", right=True),
        Column("bytes", "BYTES", show.size, right=True),
    )


def _by_workers(
    client: Client,
    run: str,
    output: Path,
    chosen: list[StepSummary],
    force: bool,
    asked: dict[str, bool],
    advance: Progress,
) -> list[dict[str, Any]]:
    """Rows of the directories, in order of step and rank."""
    import sys

    from msprobe_client.export_writer import ExportWriter
    from msprobe_client.jobs import export

    with ExportWriter(output, force=force) as writer:
        writer.refuse_existing([name for name, _ in export.items(chosen)])
    job = client.jobs.create(run, "export", title=f"export to {output}", options=export.options(output, **asked))
    job = client.jobs.add(job, export.items(chosen))
    said = f"job {job.job}: {job.items} items for workers; msprobe-client jobs {run} shows how far they are"
    print(said, file=sys.stderr)
    rows: dict[int, dict[str, Any]] = {}
    bad = 0
    try:
        for done, result in enumerate(client.jobs.results(job.job, follow=True), 1):
            advance(done, job.items)
            if result.outcome == "done":
                rows[result.item] = export.show(result.result)
            else:
                bad += 1
                print(f"{result.name}: {result.outcome}: {result.message}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"job {job.job} goes on; msprobe-client jobs cancel {job.job} ends it", file=sys.stderr)
        raise
    if bad or len(rows) < job.items:
        print(f"job {job.job}: {job.items - len(rows)} of {job.items} were not exported", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED)
    return [rows[item] for item in sorted(rows)]

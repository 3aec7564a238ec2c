"""msprobe-client jobs RUN | results JOB | cancel JOB | delete JOB"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common
from msprobe_client.examples import epilog
from msprobe_client.exit_codes import EXIT_DIFFERS


class _Group(TyperGroup):
    """`jobs RUN` is `jobs list RUN`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            args = ["list", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Group,
    help="Jobs of the work queue: progress (`jobs RUN`), results, cancelling. Workers: msprobe-client worker.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JobNumber = Annotated[int, typer.Argument(metavar="JOB", min=1, help="Number of the job", show_default=False)]


@app.command("list", epilog=epilog(["msprobe-client jobs tuesday", "msprobe-client jobs list tuesday --format json"]))
def list_(
    context: typer.Context,
    run: RunName,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Show the jobs of a run and how far they are."""
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, show, write

    with options.connect() as client:
        found = client.jobs.of_run(run)
    columns = (
        Column("job", "JOB", right=True),
        Column("kind", "KIND"),
        Column("title", "TITLE"),
        Column("state", "STATE"),
        Column("items", "ITEMS", right=True),
        Column("waiting", "WAITING", right=True),
        Column("leased", "LEASED", right=True),
        Column("done", "DONE", right=True),
        Column("failed", "FAILED", right=True),
        Column("crashed", "CRASHED", right=True),
        Column("attempts_lost", "", in_table=False),
        Column("created", "CREATED", show.time),
        Column("created_by", "", in_table=False),
    )
    write(options.format or Format.table, columns, [_fields(job, columns) for job in found])


@app.command(epilog=epilog(["msprobe-client jobs results 1"]))
def results(
    context: typer.Context,
    job: JobNumber,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show results as they come, until the job ends")
    ] = False,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Show the results of a job in the order in which they came. Ends with 1 where an item failed or crashed."""
    options = common(context, server, data_dir, output_format)
    from msprobe_client import jobs
    from msprobe_client.output import Column, Format, write

    columns = (
        Column("item", "ITEM", right=True),
        Column("name", "NAME"),
        Column("outcome", "OUTCOME"),
        Column("attempts", "ATTEMPTS", right=True),
        Column("seconds", "SECONDS", lambda value: f"{value:.3f}", right=True),
        Column("worker", "", in_table=False),
        Column("answer", "ANSWER"),
    )
    bad = 0
    with options.connect() as client:
        kind = client.jobs.get(job).kind

        def rows() -> Any:
            nonlocal bad
            for result in client.jobs.results(job, follow=follow):
                bad += result.outcome != "done"
                answer = jobs.shown(kind, result.result) if result.outcome == "done" else {"message": result.message}
                text = " ".join(f"{name}={value}" for name, value in answer.items())
                yield {**_fields(result, columns, "answer"), "answer": text}

        write(options.format or Format.table, columns, rows(), live=follow)
    if bad:
        raise typer.Exit(EXIT_DIFFERS)


@app.command(epilog=epilog(["msprobe-client jobs cancel 1"]))
def cancel(context: typer.Context, job: JobNumber, server: Server = None, data_dir: DataDir = None) -> None:
    """End a job; results that are there stay."""
    with common(context, server, data_dir).connect() as client:
        ended = client.jobs.cancel(job)
    print(
        f"job {job} is {ended.state}; {ended.done + ended.failed + ended.crashed} of {ended.items} items have a result"
    )


@app.command(epilog=epilog(["msprobe-client jobs delete 1"]))
def delete(context: typer.Context, job: JobNumber, server: Server = None, data_dir: DataDir = None) -> None:
    """Forget a job that has ended, with its results."""
    with common(context, server, data_dir).connect() as client:
        client.jobs.delete(job)
    print(f"job {job} is deleted")


def _fields(item: Any, columns: Any, *but: str) -> dict[str, Any]:
    return {column.name: getattr(item, column.name) for column in columns if column.name not in but}

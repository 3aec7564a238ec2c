"""msprobe-client check SOURCE"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import Connection, PolicyName, Selection
from msprobe_client.commands.sides import Where, connected
from msprobe_client.commands.workforce import WorkerOptions, Workforce, is_of_mindspore, refuse_unusable
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.check.rows import CheckRow
    from msprobe_client.client import Client
    from msprobe_client.model import Job
    from msprobe_client.output import Column, Mark, Row

EXAMPLES = (
    "msprobe-client check tuesday --device recorded",
    "msprobe-client check dump_a --policy torch",
    "msprobe-client check dump_a --name 'Functional.linear.*' --stress --format json --output result.json",
    "msprobe-client check tuesday --workers 2",
    "msprobe-client check result.json --policy fp64-ratio",
    "msprobe-client check result.json --beside result.json --policy documented",
    "msprobe-client check tuesday --follow",
)


# Golden values that are computed here.
_COMPUTED = ("cpu-fp64", "cpu-raised")


class Show(str, Enum):
    wrong = "wrong"
    all = "all"


def run(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="A run or dump directory, captured at level L1 or mix; or an earlier result to judge again: "
            "a JSON file, or job:N",
            show_default=False,
        ),
    ],
    *,
    device: Annotated[
        str, typer.Option("--device", help="Where calls run again: cpu, cuda:0, npu:0; recorded: take what was saved")
    ] = "cpu",
    golden: Annotated[
        str,
        typer.Option(
            "--golden",
            metavar="cpu-fp64|cpu-raised|RUN",
            help="float64, or the next wider dtype, on the CPU; or what another run saved",
        ),
    ] = "cpu-fp64",
    policy: Annotated[PolicyName, typer.Option("--policy", help="What is right; see docs/checking.md")] = (
        PolicyName.default
    ),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is drawn where no tensor was saved")] = 1234,
    stress: Annotated[
        bool, typer.Option("--stress", help="Each call also with other layouts, sizes and special values")
    ] = False,
    beside: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--beside",
            metavar="FILE|job:N",
            help="With an earlier result: the result of another device, whose errors count as those to be expected",
        ),
    ] = None,
    by: WorkerOptions,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Of a run with task check, or job:N: verdicts as they come, until it has ended"),
    ] = False,
    rows: Annotated[Optional[Show], typer.Option("--rows", help="Default: wrong in a table, else all")] = None,  # noqa: UP045
    where: Where,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE", help="A file instead of stdout"),
    ] = None,
    connection: Connection,
) -> None:
    """Run every recorded call of an operator again, and find those that compute something wrong.

    Exit code 1: there are some.
    """
    from msprobe_client.check.rows import WRONG
    from msprobe_client.output import Ending, Format, progress, write

    options = connection.common(context)
    chosen = options.format or Format.table
    counts: dict[str, int] = {}
    with _client(options, source, golden) as client, progress.bar("check", "calls") as advance:
        settings = {
            "device": device,
            "golden": golden,
            "policy": policy.value,
            "seed": seed,
            "stress": stress,
            "shown": source,
        }
        workforce = by.workforce(client, options.access, device)
        asked = _Asked(source, where, beside, workforce, follow, settings)

        def kept() -> Iterator[Row]:
            for row in _found(client, asked, advance):
                counts[row.verdict] = counts.get(row.verdict, 0) + 1
                wrong_only = (rows or (Show.wrong if chosen is Format.table else Show.all)) is Show.wrong
                if not wrong_only or row.verdict not in ("pass", "skip"):
                    yield _row(row)

        def ending() -> Ending:
            said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "nothing to check"
            return Ending(facts={"verdicts": dict(sorted(counts.items()))}, shown=(said,))

        write(chosen, _columns(), kept(), output, _mark, live=follow, ending=ending)
    if any(counts.get(verdict) for verdict in WRONG):
        raise typer.Exit(EXIT_DIFFERS)


def _client(options: Any, source: str, golden: str) -> Any:
    from msprobe_client.check.again import is_result

    return connected(options, source, *([] if golden in _COMPUTED or is_result(source) else [golden]))


@dataclass(frozen=True)
class _Asked:
    source: str
    where: Any
    beside: str | None
    by: Workforce
    follow: bool
    settings: dict[str, Any]  # fields of checker.Settings


def _found(client: Client, asked: _Asked, advance: Any) -> Iterator[CheckRow]:
    from contextlib import ExitStack

    from msprobe_client import analysis_client
    from msprobe_client.check import again, queued
    from msprobe_client.check.calls import Place
    from msprobe_client.errors import InvalidArgument

    source, settings = asked.source, asked.settings

    def earlier(result: str) -> list[CheckRow]:
        if not queued.is_job(result):
            return again.saved_rows(Path(result))
        return _of_job(client, asked, queued.job_of(client, result), advance)

    if asked.follow:
        yield from _followed(client, asked, advance)
        return
    if queued.is_job(source) or again.is_result(source):
        beside = None if asked.beside is None else earlier(asked.beside)
        yield from again.judged_again(client, earlier(source), settings["policy"], beside)
        return
    if asked.beside is not None:
        raise InvalidArgument(f"--beside joins two results, and {source} is none; check it with --format json first")
    if asked.by.is_here:
        refuse_unusable(settings["device"], is_of_mindspore(client, source))
    with ExitStack() as cleanup:

        def run_of(side: str) -> str:
            if not analysis_client.is_path(side):
                return side.removeprefix(analysis_client.RUN_PREFIX)
            path = Path(side)
            return cleanup.enter_context(analysis_client.uploaded(client, path))

        run_name = run_of(source)
        golden = settings["golden"]
        settings = {**settings, "golden": golden if golden in _COMPUTED else run_of(golden)}
        selection = Selection(asked.where.step, asked.where.rank)
        places = [
            Place(run_name, summary.step, summary.rank) for summary in selection.of(source, client.steps(run_name))
        ]
        if asked.by.makes_a_job:
            yield from _of_job(
                client, asked, queued.put(client, places, f"check {source}", asked.where.name, settings), advance
            )
            return
        from msprobe_client.check.checker import Settings, checked

        for done, total, found in checked(client, places, Settings(**settings), asked.where.name):
            advance(done, total)
            yield from found


def _followed(client: Client, asked: _Asked, advance: Any) -> Iterator[CheckRow]:
    """By the policy of the run, or by another one that is named."""
    from msprobe_client import analysis_client
    from msprobe_client.check import again, queued
    from msprobe_client.errors import InvalidArgument
    from msprobe_client.output import tell

    if not queued.is_job(asked.source) and analysis_client.is_path(asked.source):
        raise InvalidArgument(f"--follow is for a run that goes on, and {asked.source} is no run; name one, or job:N")
    run_name = asked.source.removeprefix(analysis_client.RUN_PREFIX)
    job = (
        queued.job_of(client, asked.source)
        if queued.is_job(asked.source)
        else queued.live_job_of(client, run_name, lambda text: tell(text, "msprobe-client check"))
    )
    if job is None:
        return
    policy = asked.settings["policy"]
    for rows in queued.rows_as_they_come(client, job, advance):
        if policy == PolicyName.default.value:
            yield from rows
        else:
            yield from again.judged_again(client, rows, policy)


def _of_job(client: Client, asked: _Asked, job: Job, advance: Any) -> list[CheckRow]:
    from msprobe_client.jobs import check

    return asked.by.rows(client, job, check.rows, "judges them again", advance)


def _columns() -> list[Column]:
    from msprobe_client.output import Column

    def number(value: Any) -> str:
        return "" if value is None else f"{value:.4g}"

    def index(value: Any) -> str:
        return "" if value is None else str(list(value))

    return [
        Column("name", "output"),
        Column("step", "step", right=True, kind="int"),
        Column("rank", "rank"),
        Column("operation", "operation", in_table=False),
        Column("variant", "variant"),
        Column("verdict", "verdict"),
        Column("policy", "policy", in_table=False, kind="text"),
        Column("rule", "rule"),
        Column("measured", "measured", number, right=True, kind="float"),
        Column("limit", "limit", number, right=True, kind="float"),
        Column("dtype", "dtype"),
        Column("shape", "shape", index),
        Column("inputs", "inputs", in_table=False),
        Column("worst_index", "worst", index),
        Column("worst_output", "is", number, right=True, kind="float"),
        Column("worst_golden", "should be", number, right=True, kind="float"),
        Column("reason", "reason"),
        Column("stack", "stack", in_table=False),
        Column("repeat", "repeat", in_table=False),
    ]


def _row(row: CheckRow) -> Row:
    from dataclasses import asdict

    return asdict(row)


def _mark(row: Row) -> Mark:
    return "bad" if row["verdict"] in ("fail", "error") else "doubtful" if row["verdict"] == "warning" else ""

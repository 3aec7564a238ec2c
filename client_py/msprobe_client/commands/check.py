"""msprobe-client check SOURCE"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer

from msprobe_client.commands.options import Connection, Selection
from msprobe_client.commands.sides import Where, connected
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.access import Access
    from msprobe_client.check.queued import Crew
    from msprobe_client.check.rows import CheckRow
    from msprobe_client.client import Client
    from msprobe_client.model import ItemResult, Job
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


AnyRow = TypeVar("AnyRow")
# Golden values that are computed here.
_COMPUTED = ("cpu-fp64", "cpu-raised")


class PolicyName(str, Enum):
    """As server/analysis/check/policy.cc lists them."""

    default = "default"
    documented = "documented"
    torch = "torch"
    fp64_ratio = "fp64-ratio"
    acc_check = "acc-check"
    cann = "cann"


class Engine(str, Enum):
    local = "local"
    queue = "queue"
    ray = "ray"


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
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=0,
            max=256,
            help="Processes here, of one thread each: a call that crashes costs one of them",
        ),
    ] = 0,
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="queue: by workers elsewhere (msprobe-client worker), as a job; ray: by workers on a Ray cluster, "
            "as many as --workers says or it has CPUs or devices",
        ),
    ] = Engine.local,
    ray_address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ray-address", metavar="ADDRESS", help="Of the cluster; default: $RAY_ADDRESS, else one here"),
    ] = None,
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
        crew = crew_of(engine, workers, ray_address, client)
        asked = _Asked(source, where, beside, crew, engine is Engine.queue, follow, options.access, settings)

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


def crew_of(engine: Engine, workers: int, ray_address: str | None, client: Client) -> Crew:
    """Whom the options name."""
    from msprobe_client.address import is_of_this_machine
    from msprobe_client.check.queued import Crew
    from msprobe_client.errors import InvalidArgument

    on_ray = engine is Engine.ray
    if ray_address is not None and not on_ray:
        raise InvalidArgument(f"--ray-address {ray_address} is for --engine ray")
    cluster = (ray_address or os.environ.get("RAY_ADDRESS", "")) if on_ray else ""
    if cluster not in ("", "local") and client.address.startswith("unix:") and not is_of_this_machine(cluster):
        raise InvalidArgument(
            "the machines of the Ray cluster do not reach a server of this command; start one, name it --server"
        )
    return Crew(workers, on_ray, ray_address)


@dataclass(frozen=True)
class _Asked:
    source: str
    where: Any
    beside: str | None
    crew: Crew
    by_others: bool  # workers that are there
    follow: bool
    access: Access | None
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
    if not asked.by_others and not asked.crew.on_ray:
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
        if asked.crew or asked.by_others:
            yield from _of_job(
                client, asked, queued.put(client, places, f"check {source}", asked.where.name, settings), advance
            )
            return
        from msprobe_client.check.checker import Settings, checked

        for done, total, found in checked(client, places, Settings(**settings), asked.where.name):
            advance(done, total)
            yield from found


def is_of_mindspore(client: Client, source: str) -> bool:
    from msprobe_client import analysis_client
    from msprobe_client.compat.compare_command import framework_of

    if analysis_client.is_path(source):
        return framework_of(Path(source)) == "mindspore"
    run = source.removeprefix(analysis_client.RUN_PREFIX)
    return any(each.run == run and each.settings.framework == "mindspore" for each in client.runs())


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

    by = Workforce(asked.crew, asked.by_others, asked.access, asked.settings["device"])
    return rows_by_workers(client, job, by, check.rows, "judges them again", advance)


@dataclass(frozen=True)
class Workforce:
    crew: Crew
    by_others: bool  # workers that are there
    access: Access | None
    device: str


def rows_by_workers(
    client: Client,
    job: Job,
    by: Workforce,
    read: Callable[[ItemResult, bytes], list[AnyRow]],
    later: str,
    advance: Any,
) -> list[AnyRow]:
    """When workers have ended the job; the crew helps. read: the kind's function `rows`. later: what the command does
    with job:N."""
    import sys

    from msprobe_client.check import queued

    stays = not job.run.startswith(".")  # one that was uploaded goes with this command
    access = by.access.resolved() if by.access is not None else None
    try:
        if by.by_others:
            said = f"job {job.job}: {job.items} items for workers; msprobe-client jobs {job.run} shows how far they are"
            print(said, file=sys.stderr)
        elif stays:
            said = f"job {job.job} has the results; msprobe-client {job.kind} job:{job.job} {later}"
            print(said, file=sys.stderr)
        with queued.workers(client, access, job, by.device, by.crew):
            return queued.rows_of_job(client, job, advance, read)
    except KeyboardInterrupt:
        if stays:
            print(
                f"job {job.job} stays; msprobe-client {job.kind} job:{job.job} waits for its results, "
                "and with --workers 2 goes on with it",
                file=sys.stderr,
            )
        raise


def refuse_unusable(device: str, of_mindspore: bool, command: str = "check") -> None:
    """A device of `command` that this environment has not."""
    from importlib.util import find_spec

    from msprobe_client.errors import InvalidArgument

    if find_spec("torch") is None:
        raise InvalidArgument(f"{command} runs operators, and this environment has no torch; install it here")
    if device == "recorded":
        return
    if of_mindspore:
        from msprobe_client.check import mindspore_calls

        mindspore_calls.python()
        return
    if device == "cpu":
        return
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidArgument(
            f"device {device!r} cannot be used: {first}; write cpu, cuda:0, npu:0 or recorded"
        ) from None


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

"""Recorded calls as a job of the work queue, of kind check or sensitivity: its results stay on the server."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from msprobe_client import jobs
from msprobe_client.check.calls import Call, Place, calls_of
from msprobe_client.check.rows import CheckRow
from msprobe_client.errors import InvalidArgument, MsprobeError, ServerError
from msprobe_client.jobs import check

if TYPE_CHECKING:
    from msprobe_client.access import Access
    from msprobe_client.client import Client, Progress
    from msprobe_client.model import ItemResult, Job

Row = TypeVar("Row")

JOB_PREFIX = "job:"  # job:7 is what job 7 has found
LIVE = "live"  # the title of the job that a server makes for a run with task check
_ASK_AGAIN = 0.5  # seconds
_MANY = 16  # workers of a cluster whose size is not known yet


def is_job(source: str) -> bool:
    return source.startswith(JOB_PREFIX)


def job_of(client: Client, source: str, kind: str = "check") -> Job:
    number = source.removeprefix(JOB_PREFIX)
    if not number.isdecimal():
        raise InvalidArgument(f"{source!r} names no job; write job: and its number, as in job:7")
    job = client.jobs.get(int(number))
    if job.kind != kind:
        raise InvalidArgument(f"job {number} is of kind {job.kind}; name one of kind {kind}")
    return job


def live_job_of(client: Client, run: str, tell: Callable[[str], None]) -> Job | None:
    """The latest of a run that is checked while it goes on. It is waited for; None: the run has ended without one."""
    told = False
    while True:
        goes_on = any(each.run == run and each.open_sessions for each in client.runs())
        live = [job for job in client.jobs.of_run(run) if job.kind == "check" and job.title == LIVE]
        if live:
            return client.jobs.get(live[-1].job)  # with its options
        if not goes_on:
            tell(f"run {run} has ended, and had no call to check while it ran; msprobe-client check {run} does it now")
            return None
        if not told:
            tell(f"no call of run {run} has come that is to be checked; waiting for one")
        told = True
        time.sleep(_ASK_AGAIN)


def rows_as_they_come(client: Client, job: Job, advance: Progress) -> Iterator[list[CheckRow]]:
    """Of one item after another, until the job has ended."""
    for done, result in enumerate(client.jobs.results(job.job, follow=True), 1):
        yield check.rows(result, job.options)
        advance(done, max(done, job.items))


def put(
    client: Client,
    places: Iterable[Place],
    title: str,
    name: str | None,
    settings: dict[str, Any],
    kind: str = "check",
    items: Callable[[Place, Iterable[Call]], list[tuple[str, bytes]]] = check.items,
) -> Job:
    """Makes the job. places are of one run. settings: fields of checker.Settings, or of another kind's."""
    chosen = list(places)
    job = client.jobs.create(
        chosen[0].run, kind, title=title, options=check.options(**settings), item_timeout=check.ITEM_TIMEOUT
    )
    for place in chosen:
        job = client.jobs.add(job, items(place, calls_of(client, place, name)), seal=place is chosen[-1])
    return client.jobs.get(job.job)  # with its options


def rows_of_job(
    client: Client, job: Job, advance: Progress, read: Callable[[ItemResult, bytes], list[Row]]
) -> list[Row]:
    """When it has ended, in the order of its items. read: a kind's function `rows`."""
    found: dict[int, list[Row]] = {}
    for done, result in enumerate(client.jobs.results(job.job, follow=True), 1):
        found[result.item] = read(result, job.options)
        advance(done, job.items)
    if len(found) < job.items:
        print(f"job {job.job} is cancelled: {len(found)} of {job.items} items have a result", file=sys.stderr)
    return [row for item in sorted(found) for row in found[item]]


@dataclass(frozen=True, slots=True)
class Crew:
    """Who works for a job while its results are waited for.

    count: processes of one thread each; on a cluster 0 means one for each of its CPUs or devices. Else 0 is nobody.
    """

    count: int
    on_ray: bool = False
    ray_address: str | None = None

    def __bool__(self) -> bool:
        return self.count > 0 or self.on_ray


@contextmanager
def workers(client: Client, access: Access | None, job: Job, device: str, crew: Crew) -> Iterator[None]:
    """They work for the job alone, as long as this takes."""
    if not crew:
        with nullcontext():
            yield
        return
    from msprobe_client.jobs.ray_workers import RayWorkers
    from msprobe_client.jobs.supervisor import Supervisor
    from msprobe_client.jobs.worker_process import Settings

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited
    settings = Settings(
        client.address,
        "",
        "",
        jobs.modules([job.kind]),
        device="cpu" if device == "recorded" else device,
        batch=max(1, min(32, job.items // (4 * (crew.count or _MANY)))),
        access=asdict(access) if access is not None else {},
        job=job.job,
    )
    keeper = (
        RayWorkers(settings, crew.count or None, crew.ray_address) if crew.on_ray else Supervisor(settings, crew.count)
    )
    failed: list[MsprobeError] = []
    thread = threading.Thread(target=_kept, args=(keeper.run, failed, client, job.job))
    thread.start()
    try:
        yield
    finally:
        keeper.end()
        thread.join()
    if failed:
        raise failed[0]


def _kept(run: Callable[[], None], failed: list[MsprobeError], client: Client, job: int) -> None:
    try:
        run()
    except Exception as error:  # whatever ends them: nobody works for the job then, and its results are waited for
        said = f"the workers have ended: {type(error).__name__}: {error}"
        failed.append(error if isinstance(error, MsprobeError) else ServerError(said))
        client.jobs.cancel(job)

"""The work queue: jobs, their results, and what workers do. Client.jobs gives it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from msprobe_client.model import ItemResult, Job
from msprobe_client.proto import jobs_pb2, jobs_pb2_grpc

if TYPE_CHECKING:
    from msprobe_client.connection import Connection

# Under the 4 MiB that a message may have.
_MESSAGE_BYTES = 2 << 20


class Jobs:
    """Calls of msprobe.v1.Jobs. Thread safe. Errors are MsprobeError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = jobs_pb2_grpc.JobsStub(connection.channel)

    def create(
        self,
        run: str,
        kind: str,
        *,
        title: str = "",
        options: bytes = b"",
        attempts: int = 0,
        item_timeout: float = 0.0,
        token: bytes | None = None,
    ) -> Job:
        """A job without items. attempts: deaths of workers until an item is crashed; 0: 3. item_timeout: seconds; 0: an
        hour. token: of a call that may be repeated and makes one job only."""
        request = jobs_pb2.CreateJobRequest(
            run=run,
            kind=kind,
            title=title,
            options=options,
            token=token or secrets.token_bytes(16),
            limits=jobs_pb2.JobLimits(attempts=attempts, item_timeout_ms=int(item_timeout * 1000)),
        )
        return _job(self._connection.result(lambda: self._stub.CreateJob.future(request)))

    def add(self, job: Job, items: Iterable[tuple[str, bytes]], *, seal: bool = True) -> Job:
        """Adds items, (name, payload), behind those that the job has. seal: no more will come."""
        request = jobs_pb2.AddItemsRequest(job=job.job, first=job.items)
        size = 0
        for name, payload in items:
            if size + len(name) + len(payload) > _MESSAGE_BYTES:
                job = self._add(request)
                request = jobs_pb2.AddItemsRequest(job=job.job, first=job.items)
                size = 0
            request.items.add(name=name, payload=payload)
            size += len(name) + len(payload) + 16
        request.seal = seal
        return self._add(request)

    def _add(self, request: jobs_pb2.AddItemsRequest) -> Job:
        return _job(self._connection.result(lambda: self._stub.AddItems.future(request)))

    def of_run(self, run: str = "") -> list[Job]:
        """The jobs of a run, or of all runs."""
        request = jobs_pb2.ListJobsRequest(run=run)
        return [_job(job) for job in self._connection.result(lambda: self._stub.ListJobs.future(request)).jobs]

    def get(self, job: int) -> Job:
        request = jobs_pb2.ListJobsRequest(job=job)
        return _job(self._connection.result(lambda: self._stub.ListJobs.future(request)).jobs[0])

    def results(self, job: int, *, after: int = 0, follow: bool = False) -> Iterator[ItemResult]:
        """In the order in which they came, without the first `after`. follow: until the job has ended."""
        request = jobs_pb2.ReadResultsRequest(job=job, after=after, follow=follow)
        for result in self._connection.items(lambda: self._stub.ReadResults(request)):
            yield ItemResult(
                item=result.item,
                order=result.order,
                name=result.name,
                outcome=jobs_pb2.Outcome.Name(result.outcome).removeprefix("OUTCOME_").lower(),
                result=result.result,
                message=result.message,
                worker=result.worker,
                attempts=result.attempts,
                seconds=result.run_us * 1e-6,
                verdict=result.verdict,
            )

    def cancel(self, job: int) -> Job:
        request = jobs_pb2.CancelJobRequest(job=job)
        return _job(self._connection.result(lambda: self._stub.CancelJob.future(request)))

    def delete(self, job: int) -> None:
        request = jobs_pb2.DeleteJobRequest(job=job)
        self._connection.result(lambda: self._stub.DeleteJob.future(request))

    # --- for workers ------------------------------------------------------------------------------------------------

    def lease(
        self,
        worker: str,
        kinds: Sequence[str],
        *,
        max_items: int = 1,
        lease_ms: int = 0,
        wait_ms: int = 0,
        job: int = 0,
    ) -> jobs_pb2.LeaseResponse:
        """lease 0: nothing waits."""
        request = jobs_pb2.LeaseRequest(
            worker=worker, kinds=kinds, max_items=max_items, lease_ms=lease_ms, wait_ms=wait_ms, job=job
        )
        return self._connection.result(lambda: self._stub.Lease.future(request))

    def heartbeat(self, leases: Sequence[int]) -> list[int]:
        """Those that are gone."""
        request = jobs_pb2.HeartbeatRequest(leases=leases)
        return list(self._connection.result(lambda: self._stub.Heartbeat.future(request)).gone)

    def finish(
        self, lease: int, job: int, results: Sequence[jobs_pb2.FinishRequest.Result], *, worker: str = ""
    ) -> list[jobs_pb2.FinishResponse.Refused]:
        """Results that were not taken."""
        request = jobs_pb2.FinishRequest(lease=lease, job=job, results=results, worker=worker)
        return list(self._connection.result(lambda: self._stub.Finish.future(request)).refused)

    def give_back(self, lease: int, job: int, crashes: Mapping[int, str] | None = None, *, worker: str = "") -> None:
        """Ends a lease. crashes: items that were running when their worker died, and how it died."""
        request = jobs_pb2.ReturnRequest(lease=lease, job=job, worker=worker)
        for item, message in (crashes or {}).items():
            request.crashes.add(item=item, message=message)
        self._connection.result(lambda: self._stub.Return.future(request))

    def payload(self, job: int, hash: str) -> bytes:
        """The bytes of a tensor that a record of the job's run refers to. hash: PayloadRef.hash."""
        request = jobs_pb2.ReadPayloadRequest(job=job, hash=bytes.fromhex(hash))
        return b"".join(part.content for part in self._connection.items(lambda: self._stub.ReadPayload(request)))


def _job(message: jobs_pb2.Job) -> Job:
    return Job(
        job=message.job,
        run=message.run,
        kind=message.kind,
        title=message.title,
        state=jobs_pb2.Job.State.Name(message.state).lower(),
        created=_time(message.created_unix_us),
        ended=_time(message.ended_unix_us) if message.ended_unix_us else None,
        created_by=message.created_by,
        items=message.items,
        waiting=message.waiting,
        leased=message.leased,
        done=message.done,
        failed=message.failed,
        crashed=message.crashed,
        attempts_lost=message.attempts_lost,
        options=message.options,
    )


def _time(unix_us: int) -> datetime:
    return datetime.fromtimestamp(unix_us / 1e6, timezone.utc)

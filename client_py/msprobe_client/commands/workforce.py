"""Who runs recorded calls again: this process, processes beside it, workers elsewhere, or those of a Ray cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer

from msprobe_client.commands.mixins import mixin

if TYPE_CHECKING:
    from msprobe_client.access import Access
    from msprobe_client.check.queued import Crew
    from msprobe_client.client import Client
    from msprobe_client.model import ItemResult, Job

AnyRow = TypeVar("AnyRow")


class Engine(str, Enum):
    local = "local"
    queue = "queue"
    ray = "ray"


@mixin
class WorkerOptions:
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=0,
            max=256,
            help="Processes here, of one thread each: a call that crashes costs one of them",
        ),
    ] = 0
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="queue: by workers elsewhere (msprobe-client worker), as a job; ray: by workers on a Ray cluster, "
            "as many as --workers says or it has CPUs or devices",
        ),
    ] = Engine.local
    ray_address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ray-address", metavar="ADDRESS", help="Of the cluster; default: $RAY_ADDRESS, else one here"),
    ] = None

    def workforce(self, client: Client, access: Access | None, device: str) -> Workforce:
        from msprobe_client.address import is_of_this_machine
        from msprobe_client.check.queued import Crew
        from msprobe_client.errors import InvalidArgument

        on_ray = self.engine is Engine.ray
        if self.ray_address is not None and not on_ray:
            raise InvalidArgument(f"--ray-address {self.ray_address} is for --engine ray")
        cluster = (self.ray_address or os.environ.get("RAY_ADDRESS", "")) if on_ray else ""
        if cluster not in ("", "local") and client.address.startswith("unix:") and not is_of_this_machine(cluster):
            raise InvalidArgument(
                "the machines of the Ray cluster do not reach a server of this command; start one, name it --server"
            )
        crew = Crew(self.workers, on_ray, self.ray_address)
        return Workforce(crew, self.engine is Engine.queue, access, device)


@dataclass(frozen=True)
class Workforce:
    crew: Crew
    by_others: bool  # workers that are there
    access: Access | None
    device: str

    @property
    def is_here(self) -> bool:
        """Calls run in this command's own processes, and so in this environment."""
        return not self.by_others and not self.crew.on_ray

    @property
    def makes_a_job(self) -> bool:
        return bool(self.crew) or self.by_others

    def rows(
        self, client: Client, job: Job, read: Callable[[ItemResult, bytes], list[AnyRow]], later: str, advance: Any
    ) -> list[AnyRow]:
        """When workers have ended the job; the crew helps. read: the kind's function `rows`. later: what the command
        does with job:N."""
        from msprobe_client.check import queued

        stays = not job.run.startswith(".")  # one that was uploaded goes with this command
        access = self.access.resolved() if self.access is not None else None
        try:
            if self.by_others:
                said = (
                    f"job {job.job}: {job.items} items for workers; "
                    f"msprobe-client jobs {job.run} shows how far they are"
                )
                print(said, file=sys.stderr)
            elif stays:
                said = f"job {job.job} has the results; msprobe-client {job.kind} job:{job.job} {later}"
                print(said, file=sys.stderr)
            with queued.workers(client, access, job, self.device, self.crew):
                return queued.rows_of_job(client, job, advance, read)
        except KeyboardInterrupt:
            if stays:
                print(
                    f"job {job.job} stays; msprobe-client {job.kind} job:{job.job} waits for its results, "
                    "and with --workers 2 goes on with it",
                    file=sys.stderr,
                )
            raise


def is_of_mindspore(client: Client, source: str) -> bool:
    from msprobe_client import analysis_client
    from msprobe_client.compat.compare_command import framework_of

    if analysis_client.is_path(source):
        return framework_of(Path(source)) == "mindspore"
    run = source.removeprefix(analysis_client.RUN_PREFIX)
    return any(each.run == run and each.settings.framework == "mindspore" for each in client.runs())


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

"""msprobe-client worker --server ADDRESS"""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from dataclasses import asdict
from enum import Enum
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from msprobe_client.commands.options import DataDir, Server, common, usage

if TYPE_CHECKING:
    from msprobe_client.jobs.worker_process import Settings

EXAMPLES = (
    "msprobe-client worker --processes 4 --idle-exit 1",
    "msprobe-client worker --kinds export --idle-exit 1",
)
_DEVICE = re.compile(r"cpu|(cuda|npu):[0-9]{1,4}")


class Engine(str, Enum):
    local = "local"
    ray = "ray"


def run(
    context: typer.Context,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="Where items run: cpu, cuda:N or npu:N")
    ] = "cpu",
    processes: Annotated[
        int,
        typer.Option("--processes", min=1, max=1024, help="How many run at once; with --engine ray, over all machines"),
    ] = 1,
    kinds: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--kinds",
            metavar="KIND",
            help="What to work for; KIND=MODULE for one of your own. Several times. Default: all",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1024, help="Items that a process takes at once")] = 32,
    lease: Annotated[
        float,
        typer.Option("--lease", metavar="SECONDS", min=1, max=600, help="Of silence, after which others get its items"),
    ] = 30.0,
    idle_exit: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--idle-exit", metavar="SECONDS", min=0, help="End after so long without work; default: never"),
    ] = None,
    engine: Annotated[
        Engine, typer.Option("--engine", help="ray: processes on a Ray cluster, whose machines have msprobe-client")
    ] = Engine.local,
    ray_address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ray-address", metavar="ADDRESS", help="Of the cluster; default: $RAY_ADDRESS, else one here"),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
) -> None:
    """Run items of jobs until Ctrl-C. An item that ends its process costs that process; another one goes on."""
    options = common(context, server, data_dir)
    if not _DEVICE.fullmatch(device):
        raise typer.BadParameter(f"{device!r} is no device: write cpu, cuda:N or npu:N", param_hint="--device")
    if data_dir is not None:
        raise typer.BadParameter("a worker needs a server that stays: give --server ADDRESS", param_hint="--data_dir")
    from msprobe_client import jobs
    from msprobe_client.jobs.worker_process import Settings

    chosen = usage(lambda _: jobs.modules(kinds or ()), "", "--kinds")
    with options.connect() as client:
        client.server_info()  # a wrong address is said here, once
        address = client.address
    access = asdict(options.access.resolved()) if options.access is not None else {}
    settings = Settings(
        address,
        "",
        "",
        chosen,
        device=device,
        batch=batch,
        lease_ms=int(lease * 1000),
        idle_exit=idle_exit,
        access=access,
    )
    if engine == Engine.ray:
        _on_ray(settings, processes, ray_address)
    else:
        _here(settings, processes)


def _here(settings: Settings, processes: int) -> None:
    from msprobe_client.jobs.supervisor import Supervisor

    supervisor = Supervisor(settings, processes)

    def end(number: int, frame: FrameType | None) -> None:
        supervisor.end()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    supervisor.run()


def _on_ray(settings: Settings, processes: int, address: str | None) -> None:
    from msprobe_client.jobs.ray_workers import RayWorkers

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    with suppress(KeyboardInterrupt):  # the way to end it
        RayWorkers(settings, processes, address).run()

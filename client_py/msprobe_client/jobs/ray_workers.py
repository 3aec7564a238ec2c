"""Workers on a Ray cluster: each Ray task keeps one worker process, and is run again where its machine dies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msprobe_client.jobs.supervisor import Supervisor
from msprobe_client.jobs.worker_process import Settings
from msprobe_client.ray_engine import RayEngine


def run_workers(settings: Settings, processes: int, address: str | None, cpus: int | None = None) -> None:
    """Until every worker has been idle for Settings.idle_exit. Every machine reaches the server at settings.address."""
    kind = settings.device.partition(":")[0]
    # A task sees the accelerator that Ray reserves for it as its first.
    device = "cpu" if kind == "cpu" else f"{kind}:0"
    with RayEngine(settings.address, None, address, cpus) as engine:
        given = replace(settings, device=device).to_dict()
        engine.keep_running(supervise, given, processes, **_resources(kind))


def supervise(settings: dict[str, Any]) -> None:
    """In a Ray task."""
    Supervisor(Settings(**settings), 1).run()


def _resources(kind: str) -> dict[str, Any]:
    """What Ray reserves for a worker."""
    if kind == "cuda":
        return {"num_cpus": 1, "num_gpus": 1}
    return {"num_cpus": 1, "resources": {"NPU": 1}} if kind == "npu" else {"num_cpus": 1}

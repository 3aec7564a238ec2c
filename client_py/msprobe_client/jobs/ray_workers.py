"""Workers on a Ray cluster: each Ray task keeps one worker process, and is run again where its machine dies."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from msprobe_client.errors import InvalidArgument
from msprobe_client.jobs.supervisor import Supervisor
from msprobe_client.jobs.worker_process import Settings
from msprobe_client.ray_engine import RayEngine

_RESOURCES = {"cpu": "CPU", "cuda": "GPU", "npu": "NPU"}


class RayWorkers:
    """A Supervisor's place on a cluster. settings: of each worker; every machine reaches the server at its address.

    processes: how many workers; None: as many as the cluster has CPUs, or devices of the settings' kind.
    address: of the cluster, as RayEngine has it.
    """

    def __init__(self, settings: Settings, processes: int | None, address: str | None) -> None:
        self._kind = settings.device.partition(":")[0]
        # A task sees the accelerator that Ray reserves for it as its first.
        self._settings = replace(settings, device="cpu" if self._kind == "cpu" else f"{self._kind}:0")
        self._processes = processes
        self._address = address
        self._ending = threading.Event()

    def end(self) -> None:
        """Makes run() return soon. From any thread."""
        self._ending.set()

    def run(self) -> None:
        """Until end(), or until every worker has been idle for Settings.idle_exit. From any thread."""
        with RayEngine(self._settings.address, None, self._address) as engine:
            workers = self._processes or engine.count(_RESOURCES[self._kind])
            if workers == 0:
                raise InvalidArgument(f"the Ray cluster has no {_RESOURCES[self._kind]}, which --device asks for")
            engine.keep_running(supervise, self._settings.to_dict(), workers, self._ending, **_reserved(self._kind))


def supervise(settings: dict[str, Any]) -> None:
    """In a Ray task."""
    Supervisor(Settings(**settings), 1).run()


def _reserved(kind: str) -> dict[str, Any]:
    """What Ray keeps for a worker."""
    if kind == "cuda":
        return {"num_cpus": 1, "num_gpus": 1}
    return {"num_cpus": 1, "resources": {"NPU": 1}} if kind == "npu" else {"num_cpus": 1}

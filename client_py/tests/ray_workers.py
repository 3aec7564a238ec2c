"""Workers on a Ray cluster; make nightly runs it, since Ray takes long to start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from test_jobs import address, client, make, until, worker  # noqa: F401
from test_server_binary import binary  # noqa: F401

from msprobe_client import Client


@pytest.mark.timeout(400)
def test_ray_s_workers_go_on_where_one_is_killed(
    address: str,  # noqa: F811
    client: Client,  # noqa: F811
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'msprobe-client[ray]'")
    job = make(client, f"mark {tmp_path}/mark 60", *["plain"] * 30, "kill 11", attempts=2)
    with worker(address, "--engine", "ray", "--processes", 2):
        until((tmp_path / "mark").exists, 90)
        process = int((tmp_path / "mark").read_text())
        supervisor = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        (tmp_path / "mark").unlink()
        os.kill(supervisor, signal.SIGKILL)  # Ray's process; the worker process notices
        until((tmp_path / "mark").exists, 90)
        os.kill(int((tmp_path / "mark").read_text()), signal.SIGKILL)
        until((tmp_path / "mark").exists, 90)
        until(lambda: client.jobs.get(job.job).crashed == 1, 60)
        client.jobs.cancel(job.job)
    found = list(client.jobs.results(job.job))
    assert len({result.item for result in found}) == len(found)
    assert client.jobs.get(job.job).done == 30

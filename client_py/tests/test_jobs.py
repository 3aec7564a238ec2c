"""Workers and the work queue, against the real msprobe-server: what dies, what is given back, what a user reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import TESTS, Run, rows
from test_server_binary import binary  # noqa: F401

from msprobe_client import Client
from msprobe_client.embedded import EmbeddedServer
from msprobe_client.errors import FailedPrecondition, InvalidArgument, NotFound
from msprobe_client.jobs import modules
from msprobe_client.model import ItemResult, Job

KIND = "test=job_kinds"
DUMP: dict[str, Any] = {"Torch.f.0.forward": {"input_args": [], "input_kwargs": {}, "output": []}}


@pytest.fixture(scope="module")
def address(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: F811
    """A server with the run `r` of two steps."""
    scratch = tmp_path_factory.mktemp("jobs")
    for step in (0, 1):
        directory = scratch / "dump" / f"step{step}" / "rank0"
        directory.mkdir(parents=True)
        document = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": DUMP}
        (directory / "dump.json").write_text(json.dumps(document))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSPROBE_SERVER_BINARY", binary)
        with EmbeddedServer(scratch / "store", create=True) as server:
            with Client(server.address) as client:
                client.import_dump(scratch / "dump", "r")
            yield server.address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made
        for job in made.jobs.of_run("r"):
            made.jobs.cancel(job.job)
            made.jobs.delete(job.job)


def make(client: Client, *payloads: str, attempts: int = 0, item_timeout: float = 0.0) -> Job:
    job = client.jobs.create("r", "test", attempts=attempts, item_timeout=item_timeout)
    return client.jobs.add(job, [(f"item {i}", payload.encode()) for i, payload in enumerate(payloads)])


@contextmanager
def worker(address: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "msprobe_client", "--server", address, "worker", "--kinds", KIND]
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def results(client: Client, job: Job) -> dict[int, ItemResult]:
    """Of all items, when the job has ended; each has exactly one."""
    found = list(client.jobs.results(job.job, follow=True))
    by_item = {result.item: result for result in found}
    assert len(by_item) == len(found) == job.items
    return by_item


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.timeout(120)
def test_an_item_that_ends_its_process_costs_that_process_and_one_verdict(address: str, client: Client) -> None:
    kills = {3: "kill 11", 7: "kill 9", 8: "exit 7", 5: "kill-once", 4: "refuse", 9: "raise", 10: "long"}
    job = make(client, *(kills.get(i, "plain") for i in range(14)))
    with worker(address, "--processes", 2, "--batch", 5, "--device", "cuda:1"):
        found = results(client, job)
    assert {i: result.outcome for i, result in found.items() if result.outcome != "done"} == {
        3: "crashed",
        7: "crashed",
        8: "crashed",
        4: "failed",
        9: "failed",
        10: "failed",
    }
    assert found[3].message == "killed by signal 11 (SIGSEGV)" and found[3].attempts == 3
    assert found[7].message == "killed by signal 9 (SIGKILL)"
    assert found[8].message == "ended with exit code 7"
    assert found[4].message == "this item is refused"
    assert found[9].message == "ValueError: a defect"
    assert found[10].message == "the result has 65537 bytes; at most 65536 are taken"
    assert found[5].attempts == 2 and found[5].outcome == "done"
    assert found[0].result == b"plain done on cuda:1" and found[0].name == "item 0"
    assert all(result.attempts == 1 for i, result in found.items() if i not in (3, 5, 7, 8)), "the others lost nothing"
    assert client.jobs.get(job.job).attempts_lost == 3 * 3 + 1


@pytest.mark.timeout(60)
def test_an_item_that_runs_too_long_is_ended(address: str, client: Client) -> None:
    job = make(client, "sleep 60", "plain", attempts=1, item_timeout=0.5)
    with worker(address):
        found = results(client, job)
    assert (found[0].outcome, found[0].message) == ("crashed", "ran longer than 0.5 s")
    assert found[1].outcome == "done"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_end_gives_its_items_back(
    address: str, client: Client, tmp_path: Path, sent: signal.Signals
) -> None:
    job = make(client, "plain", f"mark {tmp_path}/mark 60", "plain")
    with worker(address) as process:
        until((tmp_path / "mark").exists)
        process.send_signal(sent)
        assert process.wait(10) == 0
    progress = client.jobs.get(job.job)
    assert (progress.done, progress.waiting, progress.leased, progress.attempts_lost) == (1, 2, 0, 0)


@pytest.mark.timeout(60)
def test_a_supervisor_that_is_killed_takes_its_processes_with_it(address: str, client: Client, tmp_path: Path) -> None:
    job = make(client, f"mark {tmp_path}/mark 60", "plain")
    with worker(address) as process:
        until((tmp_path / "mark").exists)
        process.kill()
        until(lambda: client.jobs.get(job.job).waiting == 2)
    child = int((tmp_path / "mark").read_text())
    until(lambda: not Path(f"/proc/{child}").exists())


@pytest.mark.timeout(60)
def test_idle_workers_end_and_a_kind_that_cannot_be_had_is_said(address: str, client: Client, run_client: Run) -> None:
    job = make(client, "plain")
    with worker(address, "--idle-exit", 0.2) as process:
        assert process.wait(30) == 0
    assert client.jobs.get(job.job).state == "finished"
    for kinds, said in (
        ("chek", "'chek' is no kind of job; there are check, export, sensitivity, and KIND=MODULE"),
        ("a=no_such_module", "no_such_module is no module of a job's kind: No module named 'no_such_module'"),
    ):
        refused = run_client("--server", address, "worker", "--kinds", kinds)
        assert refused.returncode in (2, 3) and said in " ".join(refused.stderr.split()), refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.timeout(60)
def test_what_a_user_sees_of_jobs(address: str, client: Client, run_client: Run) -> None:
    job = make(client, "plain", "refuse")
    with worker(address):
        results(client, job)
    (row,) = rows(run_client("--server", address, "jobs", "r", "--format", "json"))
    assert (row["job"], row["kind"], row["state"], row["done"], row["failed"]) == (job.job, "test", "finished", 1, 1)
    shown = run_client("--server", address, "jobs", "results", job.job, "--format", "json")
    assert shown.returncode == 1, "an item failed"
    assert [row["answer"] for row in rows(shown)] == ["bytes=17", "message=this item is refused"]
    waiting = make(client, "plain")
    cancelled = run_client("--server", address, "jobs", "cancel", waiting.job)
    assert cancelled.stdout == f"job {waiting.job} is cancelled; 0 of 1 items have a result\n"
    assert run_client("--server", address, "jobs", "delete", waiting.job).returncode == 0
    missing = run_client("--server", address, "jobs", "results", waiting.job)
    assert missing.returncode == 3 and f"no job {waiting.job};" in missing.stderr
    no_run = run_client("--server", address, "jobs", "nothing")
    assert no_run.returncode == 3 and 'no run "nothing"' in no_run.stderr


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("client")
def test_an_export_by_workers_is_that_of_the_command(address: str, run_client: Run, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "msprobe_client", "--server", address, "worker", "--kinds", "export"]
    workers = subprocess.Popen([*command, "--processes", "2"])
    try:
        spread = run_client("--server", address, "export", "r", "-o", tmp_path / "a", "--engine", "queue")
    finally:
        workers.terminate()
        workers.wait(20)
    assert spread.returncode == 0, spread.stderr
    alone = run_client("--server", address, "export", "r", "-o", tmp_path / "b")
    assert [line.split()[1:] for line in spread.stdout.splitlines()] == [
        line.split()[1:] for line in alone.stdout.splitlines()
    ]
    for step in (0, 1):
        a, b = (tmp_path / side / f"step{step}" / "rank0" / "dump.json" for side in "ab")
        assert json.loads(a.read_text())["data"] == json.loads(b.read_text())["data"]
    again = run_client("--server", address, "export", "r", "-o", tmp_path / "a", "--engine", "queue")
    assert again.returncode == 3 and "exists" in again.stderr


def test_bad_input_is_one_line(client: Client) -> None:
    with pytest.raises(NotFound, match='no run "nothing"'):
        client.jobs.create("nothing", "test")
    with pytest.raises(InvalidArgument, match="a kind has 1 to 32 lower-case letters"):
        client.jobs.create("r", "Check It")
    job = client.jobs.create("r", "test")
    with pytest.raises(InvalidArgument, match=r"items\.payload has 70000 bytes; at most 65536 are taken"):
        client.jobs.add(job, [("long", b"x" * 70_000)])
    with pytest.raises(FailedPrecondition, match="is running; cancel it, then delete it"):
        client.jobs.delete(job.job)
    with pytest.raises(InvalidArgument, match="is no kind of job"):
        modules(["a="])

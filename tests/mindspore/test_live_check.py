"""Task check in a MindSpore job: its calls are checked by workers that have torch and no MindSpore, while it runs."""

import json
import os
import pathlib
import tempfile

import pytest
from harness.mindspore import PROGRAMS
from harness.processes import Background, external_server, wait_until

torch = pytest.importorskip("torch")

from msprobe_client import Client  # noqa: E402

PROGRAM = PROGRAMS / "live_check.py"
BUDGET = 60_000


@pytest.fixture
def server(tmp_path):
    with tempfile.TemporaryDirectory(prefix="msp") as short:
        socket = pathlib.Path(short) / "s"
        with external_server(socket, tmp_path / "data", tmp_path / "log"):
            yield f"unix:{socket}"


def program(python, tmp_path, run, config, *wrong, hold=False):
    path = {"PYTHONPATH": built} if (built := os.environ.get("MSPROBE_MINDSPORE_PATH")) else {}
    held = tmp_path / f"{run}.hold"
    if hold:
        held.touch()
    return Background([python, PROGRAM, held, config, *wrong], tmp_path / f"{run}.log", **path), held


def weights(started):
    started.finish()
    return next(line for line in started.output.splitlines() if line.startswith("weights"))


def live_job(client, run):
    found = [job for job in client.jobs.of_run(run) if job.kind == "check"]
    return found[-1] if found else None


@pytest.mark.timeout(280)
def test_a_wrong_function_is_found_while_the_job_runs_and_the_job_computes_the_same(
    client, server, mindspore_python, tmp_path
):
    plain, _ = program(mindspore_python, tmp_path, "plain", "off", "wrong")
    with plain:
        expected = weights(plain)
    config = tmp_path / "config.json"
    check = {"budget_mb": BUDGET / 2**20, "budget_ms": 1000}
    document = {"task": "check", "level": "L1", "dump_path": str(tmp_path / "dump"), "server": server, "run": "wrong"}
    config.write_text(json.dumps(document | {"check": check}))
    started, held = program(mindspore_python, tmp_path, "wrong", config, "wrong", hold=True)
    words = [client, "--server", server]
    worker = Background([*words, "worker", "--kinds", "check"], tmp_path / "worker.log", OMP_NUM_THREADS=1)
    with worker, started, Client(server) as asked:
        started.wait_for(lambda: "wrong" in [run.run for run in asked.runs()], 90, "the run is there")
        follow = [*words, "check", "wrong", "--follow", "--format", "json"]
        with Background(follow, tmp_path / "followed.json") as followed:
            followed.wait_for(lambda: '"fail"' in followed.output, 90, "a wrong function is found and its row shown")
            assert started.alive()
            held.unlink()
            assert weights(started) == expected
            wait_until(lambda: live_job(asked, "wrong").state == "finished", 60, "everything is checked")
            followed.process.wait(30)
            rows = json.loads(followed.output[followed.output.index("{") :])["rows"]
        failed = {row["operation"] for row in rows if row["verdict"] in ("fail", "error", "crashed")}
        assert failed == {"gelu"}
        passed = [row["name"] for row in rows if row["verdict"] == "pass"]
        assert {name.split(".")[1] for name in passed} >= {"linear", "square", "mean"}
        assert any(".backward." in name for name in passed)
        assert {row["inputs"] for row in rows if row["verdict"] in ("pass", "fail")} == {"saved"}
        for summary in asked.steps("wrong"):
            records = list(asked.records("wrong", step=summary.step, rank=summary.rank))
            sizes = [stats.payload.size for record in records for _, stats in record.tensors() if stats.payload]
            assert sum(sizes) <= BUDGET

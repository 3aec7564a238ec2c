"""A check as a job of the queue: what it finds, what it costs to crash, and what stays on the server."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest
from harness.processes import PROGRAMS, environment, external_server
from msprobe_client import Client

NET = PROGRAMS / "checked_net.py"
TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8], "requires_grad": False,
          "Max": 2.0, "Min": -1.0, "Mean": 0.5, "Norm": 3.0}  # fmt: skip
FAULTY = ("double", "reads_nothing", "double")
RACING = ("double", "off_by_a_percent", "races")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server with the runs `net`, a wrong gelu among its calls, and `faulty`, whose operators end their process."""
    scratch = tmp_path_factory.mktemp("check_jobs")
    command = [sys.executable, NET, scratch / "net", "tensor", "wrong"]
    subprocess.run(command, check=True, timeout=120, env=environment())
    faulty = scratch / "faulty" / "step0" / "rank0"
    faulty.mkdir(parents=True)
    racing = scratch / "racing" / "step0" / "rank0"
    racing.mkdir(parents=True)
    for folder, names in ((faulty, FAULTY), (racing, RACING)):
        calls = {
            f"faulty_operators.{name}.{number}.forward": {
                "input_args": [TENSOR],
                "input_kwargs": {},
                "output": [TENSOR],
            }
            for number, name in enumerate(names)
        }
        document = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": calls}
        (folder / "dump.json").write_text(json.dumps(document))
    with tempfile.TemporaryDirectory(prefix="msp") as short:
        socket = pathlib.Path(short) / "s"
        with external_server(socket, scratch / "data", scratch / "log"):
            with Client(f"unix:{socket}") as made:
                made.import_dump(scratch / "net", "net")
                made.import_dump(scratch / "faulty", "faulty")
                made.import_dump(scratch / "racing", "racing")
            yield f"unix:{socket}"


@pytest.fixture
def check(client, address, tmp_path):
    """check(*words): (exit code, rows by name, stderr, file)."""

    def run(*words):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        command = [client, "--server", address, "check", *words, "--format", "json", "--output", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=with_programs())
        assert file.exists(), done.stderr
        return done.returncode, {row["name"]: row for row in json.loads(file.read_text())["rows"]}, done.stderr, file

    return run


def with_programs():
    # One thread: sums in another order differ in their last bits.
    return environment(OMP_NUM_THREADS=1, PYTHONPATH=os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")]))


def measured(rows):
    return {name: (row["verdict"], row["rule"], row["accuracy"]) for name, row in rows.items() if row["accuracy"]}


def test_workers_find_what_one_process_finds_and_other_policies_judge_it_later(check, address):
    words = ["net", "--device", "recorded"]
    code, local, _, file = check(*words)
    queue_code, queued, *_ = check(*words, "--workers", "2")
    assert queue_code == code == 1
    assert measured(queued) == measured(local)
    assert {name for name, row in queued.items() if row["verdict"] == "skip"} >= {
        name for name, row in local.items() if row["verdict"] == "skip"
    }
    with Client(address) as client:
        (job,) = [job for job in client.jobs.of_run("net") if job.kind == "check"]
    assert (job.state, job.done) == ("finished", job.items)
    file_code, of_file, *_ = check(file, "--policy", "torch")
    again_code, again, *_ = check(f"job:{job.job}", "--policy", "torch")  # without a worker
    assert again_code == file_code
    assert {row["policy"] for row in again.values() if row["accuracy"]} == {"torch"}
    assert measured(again) == measured(of_file)
    _, beside, *_ = check(f"job:{job.job}", "--beside", f"job:{job.job}", "--policy", "cann")
    assert beside["Functional.gelu.0.forward.output.0"]["measured"] == 1


def test_an_operator_that_crashes_costs_one_verdict(check):
    code, rows, said, _ = check("faulty", "--workers", "1")
    verdicts = {name.split(".")[1] + name.split(".")[2]: row["verdict"] for name, row in rows.items()}
    assert verdicts == {"double0": "pass", "reads_nothing1": "crashed", "double2": "pass"}
    assert code == 1
    crash = rows["faulty_operators.reads_nothing.1.forward"]
    assert "SIGSEGV" in crash["reason"] and crash["operation"] == "reads_nothing"
    assert "--name faulty_operators.reads_nothing.1.forward" in crash["repeat"]
    assert "Traceback" not in said


def test_a_race_is_told_from_a_wrong_formula(check):
    code, rows, *_ = check("racing", "--workers", "1")
    found = {name.split(".")[1]: (row["verdict"], row["rule"], row["reason"]) for name, row in rows.items()}
    assert code == 1
    assert found["double"][0] == "pass"
    assert found["off_by_a_percent"][0] == "fail" and found["off_by_a_percent"][1] != "deterministic"
    assert found["races"][:2] == ("fail", "deterministic")
    assert "gave another result" in found["races"][2]


def test_a_check_that_was_left_goes_on_and_a_cancelled_one_shows_what_it_has(client, address):
    command = [client, "--server", address, "check"]
    first = subprocess.Popen(
        [*command, "net", "--engine", "queue"], stderr=subprocess.PIPE, text=True, env=with_programs()
    )
    job = first.stderr.readline().split()[1].rstrip(":")  # job 3: ...
    first.send_signal(signal.SIGINT)
    assert f"check job:{job} " in first.communicate(timeout=30)[1]
    with Client(address) as asked:
        assert asked.jobs.get(int(job)).waiting > 0
        assert asked.jobs.cancel(int(job)).state == "cancelled"
    done = subprocess.run([*command, f"job:{job}"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and f"job {job} is cancelled: 0 of" in done.stderr
    other = subprocess.run([*command, "job:x"], capture_output=True, text=True, timeout=60, check=False)
    assert other.returncode == 3 and "names no job" in other.stderr

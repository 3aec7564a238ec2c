"""Task check: operators of a running job are checked by workers beside it, and the job never waits for them."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request

import pytest
from harness.processes import PROGRAMS, REPOSITORY, Background, external_server, free_port, wait_until
from msprobe_client import Client

PROGRAM = PROGRAMS / "live_check.py"
STEPS = 6
LIVE = (REPOSITORY / "docs" / "checking.md").read_text(encoding="utf-8").partition("\n## Live\n")[2]
EXAMPLE = json.loads(LIVE.partition("```json\n")[2].partition("```")[0])  # the configuration that the document shows


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """(address, address of the metrics)."""
    scratch = tmp_path_factory.mktemp("live_check")
    metrics = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="msp") as short:
        socket = pathlib.Path(short) / "s"
        with external_server(socket, scratch / "data", scratch / "log", f"--metrics_listen={metrics}"):
            yield f"unix:{socket}", metrics


@pytest.fixture
def job(server, tmp_path):
    """job(run, ...): the program, and the file that it waits for after its third step. section: check of its file."""
    with contextlib.ExitStack() as stack:

        def start(run, *, steps=STEPS, wrong=False, hold=True, off=False, program=PROGRAM, top=None, **section):
            held = tmp_path / f"{run}.hold"
            if hold:
                held.touch()
            config = tmp_path / f"{run}.json"
            document = EXAMPLE | {"dump_path": str(tmp_path / run), "run": run, "server": server[0]} | (top or {})
            config.write_text(json.dumps(document | {"check": EXAMPLE["check"] | section}))
            words = [sys.executable, program, held, steps, "off" if off else config, *["wrong"] * wrong]
            return stack.enter_context(Background(words, tmp_path / f"{run}.log")), held

        yield start


@contextlib.contextmanager
def worker(client, address, log, *words):
    command = [client, "--server", address, "worker", "--kinds", "check", *words]
    path = os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")])  # operators of one's own
    with Background(command, log, OMP_NUM_THREADS=1, PYTHONPATH=path) as started:
        yield started


def live_job(client, run):
    found = [job for job in client.jobs.of_run(run) if job.kind == "check"]
    return found[-1] if found else None


def through(client, run):
    job = live_job(client, run)
    return job if job is not None and job.state == "finished" else None


def followed(client, address, run, log):
    """check RUN --follow as JSON, begun once the run is there."""
    with Client(address) as asked:
        wait_until(lambda: run in [each.run for each in asked.runs()], 60, "the run is there")
    return Background([client, "--server", address, "check", run, "--follow", "--format", "json"], log)


def rows_of(follower):
    follower.process.wait(60)
    return json.loads(follower.output[follower.output.index("{") :])["rows"]  # what it says of waiting comes before


def weights(program):
    program.finish()
    return next(line for line in program.output.splitlines() if line.startswith("weights"))


def metric(address, text):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(text)), 0.0)


@pytest.mark.timeout(150)
def test_a_wrong_kernel_is_found_while_the_job_runs_and_the_job_computes_the_same(client, server, job, tmp_path):
    address, metrics = server
    plain, _ = job("plain", off=True, wrong=True, hold=False)
    expected = weights(plain)
    with worker(client, address, tmp_path / "worker.log"), Client(address) as asked:
        program, held = job("wrong", wrong=True)
        command = [client, "--server", address, "check", "wrong", "--follow", "--format", "json"]
        wait_until(lambda: "wrong" in [run.run for run in asked.runs()], 60, "the run is there")
        with Background(command, tmp_path / "followed.json") as followed:
            words = 'msprobe_check_verdicts_total{run="wrong",verdict="fail"}'
            program.wait_for(lambda: metric(metrics, words) > 0, 60, "a wrong operator is found")
            assert program.alive()
            followed.wait_for(lambda: '"fail"' in followed.output, 30, "its row is shown")
            held.unlink()
            assert weights(program) == expected
            wait_until(lambda: through(asked, "wrong"), 30, "everything is checked")
            followed.process.wait(30)
            assert followed.process.returncode == 1
            rows = json.loads(followed.output)["rows"]
        wrong = {row["operation"] for row in rows if row["verdict"] in ("fail", "error", "crashed")}
        assert wrong == {"gelu"}
        assert {row["operation"] for row in rows if row["verdict"] == "pass"} >= {"linear", "cross_entropy"}
        assert any(".backward." in row["name"] for row in rows if row["verdict"] == "pass")
        assert {row["inputs"] for row in rows if row["verdict"] == "fail"} == {"saved"}
        row = next(row for row in rows if row["verdict"] == "fail")
        assert PROGRAM.name in row["stack"] or "activation.py" in row["stack"]
        assert metric(metrics, 'msprobe_check_oldest_unchecked_seconds{run="wrong"}') == 0


@pytest.mark.timeout(150)
def test_without_a_worker_the_job_runs_to_its_end_and_one_that_is_killed_loses_nothing(client, server, job, tmp_path):
    address, metrics = server
    program, _ = job("alone", steps=12, hold=False, budget_ms=1000)
    weights(program)
    with Client(address) as asked:
        waiting = wait_until(
            lambda: (found := live_job(asked, "alone")) and found.state == "sealed" and found, 30, "the job is sealed"
        )
        assert waiting.items == waiting.waiting > 50
        assert metric(metrics, 'msprobe_check_oldest_unchecked_seconds{run="alone"}') > 0
        with worker(client, address, tmp_path / "first.log", "--lease", "1", "--batch", "8") as killed:
            wait_until(lambda: live_job(asked, "alone").done > 0 and live_job(asked, "alone").leased, 60, "it works")
            os.killpg(killed.process.pid, signal.SIGKILL)
        left = live_job(asked, "alone")
        assert left.done < left.items
        with worker(client, address, tmp_path / "second.log", "--lease", "1"):
            done = wait_until(lambda: through(asked, "alone"), 60, "the other worker ends it")
        assert (done.done, done.failed, done.crashed) == (done.items, 0, 0)
        results = list(asked.jobs.results(done.job))
        assert sorted(result.item for result in results) == list(range(done.items))
        assert {result.verdict for result in results} <= {"pass", "skip"}


@pytest.mark.timeout(150)
def test_calls_that_were_kept_are_perturbed_by_workers_while_the_job_runs(client, server, job, tmp_path):
    address, _ = server
    with worker(client, address, tmp_path / "worker.log", "--kinds", "sensitivity"), Client(address) as asked:
        program, held = job("perturbed", keep="all")
        wait_until(lambda: "perturbed" in [run.run for run in asked.runs()], 60, "the run is there")
        program.wait_for(lambda: (found := live_job(asked, "perturbed")) and found.done >= 5, 60, "calls are checked")
        command = [client, "--server", address, "sensitivity", "perturbed", "--engine", "queue", "--draws", "2"]
        done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, timeout=60, check=False)
        assert program.alive()
        held.unlink()
        program.finish()
    rows = json.loads(done.stdout)["rows"]
    assert done.returncode == 0, rows
    measured = {row["operation"]: row for row in rows if row["inputs"] == "saved" and ".forward." in row["name"]}
    assert measured["gelu"]["amplification"] > 0.5 and measured["linear"]["rounding"] < 10


@pytest.mark.timeout(100)
def test_a_step_keeps_no_more_than_its_budget(server, job):
    budget = 40_000
    program, _ = job("small", steps=12, hold=False, budget_mb=budget / 2**20, budget_ms=1000)
    first, _ = job("first", steps=4, hold=False, sample="first", budget_ms=1000)
    weights(program)
    weights(first)
    with Client(server[0]) as client:
        names = set()
        for summary in client.steps("small"):
            records = list(client.records("small", step=summary.step, rank=summary.rank))
            sizes = [stats.payload.size for record in records for _, stats in record.tensors() if stats.payload]
            assert sum(sizes) <= budget
            names |= {record.full_name for record in records}
        assert {"Functional.linear.0.forward", "Functional.linear.1.forward", "Functional.gelu.0.forward"} <= names
        assert len(client.steps("small")) > 3  # in turn, step after step
        captured = [
            record.full_name
            for summary in client.steps("first")
            for record in client.records("first", step=summary.step, rank=summary.rank)
        ]
        assert captured.count("Functional.linear.0.forward") == 1


@pytest.mark.timeout(150)
def test_a_second_job_is_the_reference_and_only_the_operator_that_differs_is_named(client, server, job, tmp_path):
    address, metrics = server
    same = {"sample": "identity", "budget_ms": 0}
    with worker(client, address, tmp_path / "worker.log"), Client(address) as asked:
        reference, reference_held = job("right", golden="none", **same)
        program, held = job("other", wrong=True, golden="right", **same)
        with followed(client, address, "other", tmp_path / "followed.json") as follower:
            words = 'msprobe_check_verdicts_total{run="other",verdict="fail"}'
            program.wait_for(lambda: metric(metrics, words) > 0, 60, "a wrong operator is found")
            assert program.alive() and reference.alive()
            held.unlink()
            reference_held.unlink()
            program.finish()
            reference.finish()
            wait_until(lambda: through(asked, "other"), 30, "everything is checked")
            rows = rows_of(follower)
        assert live_job(asked, "right") is None
    assert {row["operation"] for row in rows if row["verdict"] in ("fail", "error", "crashed")} == {"gelu"}
    failed = [row for row in rows if row["verdict"] == "fail"]
    assert {row["step"] for row in failed} == set(range(STEPS)), "also where the weights have parted"
    assert all(".forward." in row["name"] and "--golden right" in row["repeat"] for row in failed)
    passed = {(row["operation"], ".backward." in row["name"]) for row in rows if row["verdict"] == "pass"}
    assert passed >= {("linear", False), ("gelu", True), ("cross_entropy", False)}
    assert not [row for row in rows if row["verdict"] == "skip" and "has no " in row["reason"]], "both took the same"
    repeated = subprocess.run(
        [client, "--server", address, *shlex.split(failed[0]["repeat"])[1:]],
        **{"capture_output": True, "text": True, "timeout": 60, "check": False},
    )
    assert repeated.returncode == 1, "the tensors of the failed call are there, on both sides"


@pytest.mark.timeout(100)
def test_a_reference_that_never_comes_is_named(client, server, job, tmp_path):
    address, _ = server
    with worker(client, address, tmp_path / "worker.log"), Client(address) as asked:
        program, _ = job("deserted", steps=2, hold=False, golden="nobody", golden_wait_s=1)
        with followed(client, address, "deserted", tmp_path / "followed.json") as follower:
            weights(program)
            wait_until(lambda: through(asked, "deserted"), 30, "the calls have expired")
            rows = rows_of(follower)
            assert follower.process.returncode == 0
    assert {row["verdict"] for row in rows} == {"skip"}
    assert {row["reason"] for row in rows} == {
        f"run nobody gave no step {step} of {rows[0]['rank']} within 1s" for step in (0, 1)
    }


@pytest.mark.timeout(100)
def test_a_race_is_told_from_a_wrong_formula_while_the_job_runs(client, server, job, tmp_path):
    address, metrics = server
    top = {"custom_op_namespaces": ["faulty_operators"]}
    with worker(client, address, tmp_path / "worker.log"), Client(address) as asked:
        program, held = job("racing", steps=2, program=PROGRAMS / "live_race.py", top=top)
        with followed(client, address, "racing", tmp_path / "followed.json") as follower:
            words = 'msprobe_check_verdicts_total{run="racing",verdict="fail"}'
            program.wait_for(lambda: metric(metrics, words) >= 4, 60, "both wrong operators are found, in both steps")
            assert program.alive()
            held.unlink()
            program.finish()
            wait_until(lambda: through(asked, "racing"), 30, "everything is checked")
            rows = rows_of(follower)
    of = {name: [row for row in rows if row["operation"] == name] for name in ("double", "off_by_a_percent", "races")}
    assert {row["verdict"] for row in of["double"]} == {"pass"}
    assert {(row["verdict"], row["rule"]) for row in of["races"]} == {("fail", "deterministic")}
    assert all("gave another result" in row["reason"] for row in of["races"])
    assert {row["verdict"] for row in of["off_by_a_percent"]} == {"fail"}
    assert "deterministic" not in {row["rule"] for row in of["off_by_a_percent"]}


@pytest.mark.nightly
@pytest.mark.timeout(150)
def test_tensors_of_passed_calls_go_also_where_the_server_is_killed_in_between(client, tmp_path):
    metrics = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="msp") as short:
        socket = pathlib.Path(short) / "s"
        address = f"unix:{socket}"
        where = (socket, tmp_path / "data", tmp_path / "log", f"--metrics_listen={metrics}")

        def run(name, steps, *words):
            document = EXAMPLE | {"dump_path": str(tmp_path / name), "run": name, "server": address}
            config = tmp_path / f"{name}.json"
            config.write_text(json.dumps(document | {"check": EXAMPLE["check"] | {"budget_ms": 1000}}))
            command = [sys.executable, PROGRAM, tmp_path / "none", steps, config, *words]
            with Background(command, tmp_path / f"{name}.log") as program:
                weights(program)

        def left():
            """Bytes of tensors that are on the server."""
            return metric(metrics, "msprobe_payload_stored_bytes_total") - metric(
                metrics, "msprobe_check_released_bytes_total"
            )

        with external_server(*where), Client(address) as asked, worker(client, address, tmp_path / "a.log"):
            for steps in (4, 12):
                run(f"healthy{steps}", steps)
                wait_until(lambda: through(asked, f"healthy{steps}"), 60, "everything is checked")  # noqa: B023
                wait_until(lambda: left() == 0, 60, "nothing is left, however many steps there were")
                assert metric(metrics, "msprobe_check_released_bytes_total") > 0
        with external_server(*where), Client(address) as asked:
            run("killed", 6, "wrong")
            with worker(client, address, tmp_path / "b.log", "--lease", "1", "--batch", "4"):
                wait_until(
                    lambda: (found := live_job(asked, "killed")) and found.done > 10, 60, "some have their verdicts"
                )
        # Server and worker were killed. The next ones go on.
        with external_server(*where), Client(address) as asked:
            with worker(client, address, tmp_path / "c.log", "--lease", "1"):
                wait_until(lambda: through(asked, "killed"), 60, "everything is checked")
                wait_until(lambda: metric(metrics, "msprobe_check_released_bytes_total") > 0, 60, "tensors go")
            words = [client, "--server", address, "check", "killed"]
            follow = subprocess.run(
                [*words, "--follow", "--format", "json"],
                **{"capture_output": True, "text": True, "timeout": 60, "check": False},
            )
            wrong = [row for row in json.loads(follow.stdout)["rows"] if row["verdict"] == "fail"]
            assert {(row["operation"], row["step"]) for row in wrong} == {("gelu", step) for step in range(6)}
            for row in (wrong[0], wrong[-1]):
                command = [client, "--server", address, *shlex.split(row["repeat"])[1:]]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
                assert done.returncode == 1 and "fail" in done.stdout, "its tensors are there"
            gone = subprocess.run(
                [*words, "--device", "recorded", "--name", "Functional.cross_entropy.*", "--rows", "all"],
                **{"capture_output": True, "text": True, "timeout": 60, "check": False},
            )
            assert gone.returncode == 0 and "passed check" in " ".join(gone.stdout.split())

"""Running processes are asked to change their capture, through their server: without a restart or an edited file."""

import contextlib
import sys

import pytest
from harness import answers
from harness.dumps import write_config
from harness.processes import PROGRAMS, Background, external_server, run, wait_until

RUN = "live"
PATIENCE = 60
pytestmark = pytest.mark.timeout(240)


class Job:
    """Processes of one run on a server of its own."""

    def __init__(self, directory, address, client):
        self._directory, self._client = directory, client
        self.address = f"unix:{address}"
        self.log = directory / "server.log"
        self._stack = contextlib.ExitStack()
        self._end = directory / "end"
        self._processes = []
        self._stack.enter_context(external_server(address, directory / "data", self.log))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def begin(self, rank, *arguments, **configuration):
        config = write_config(
            self._directory / f"config{rank}.json",
            self._directory / "dump",
            server=self.address,
            run=RUN,
            **{"dump_enable": False, "level": "L0", **configuration},
        )
        progress = self._directory / f"progress{rank}"
        command = [sys.executable, PROGRAMS / "controlled.py", "--config", config, "--rank-id", rank]
        command += ["--progress", progress, "--end", self._end, *arguments]
        process = self._stack.enter_context(Background(command, self._directory / f"program{rank}.log"))
        self._processes.append(process)
        process.wait_for(progress.exists, PATIENCE, "the first step")
        return process

    def end(self):
        self._end.touch()
        for process in self._processes:
            process.finish(PATIENCE)

    def ask(self, *arguments, check=True):
        return run([self._client, "--server", self.address, "--format", "json", *arguments], check=check)

    def control(self, *arguments):
        done = self.ask("control", RUN, *arguments)
        return answers.rows(done.stdout)

    def steps(self, rank):
        done = self.ask("steps", RUN)
        rows = answers.rows(done.stdout)
        return [row["step"] for row in rows if row["rank"] == f"rank{rank}" and row["state"] == "complete"]

    def records(self, rank, step):
        done = self.ask("records", RUN, "--rank", str(rank), "--step", str(step))
        return answers.rows(done.stdout)


@pytest.fixture
def job(tmp_path, short_directory, client):
    with Job(tmp_path, short_directory / "s.sock", client) as made:
        yield made


def test_the_next_steps_of_one_rank_are_captured_and_no_more(job):
    for rank in range(2):
        job.begin(rank)
    before = job.control("status")
    assert [(row["rank"], row["answer"], row["enabled"], row["level"]) for row in before] == [
        ("rank0", "obeyed", False, "L0"),
        ("rank1", "obeyed", False, "L0"),
    ]
    assert job.steps(0) == job.steps(1) == [], "nothing is captured before somebody asks"
    (asked,) = job.control("next", "2", "--rank", "1")
    assert (asked["rank"], asked["answer"], asked["refused"]) == ("rank1", "obeyed", False)
    assert asked["said"] == "captures the next 2 steps"
    captured = wait_until(lambda: job.steps(1) if len(job.steps(1)) >= 2 else None, PATIENCE, "two steps of rank 1")
    later = [row["step"] for row in job.control("status")]
    wait_until(lambda: min(row["step"] for row in job.control("status")) > max(later) + 5, PATIENCE, "five steps more")
    assert job.steps(1) == captured and captured[1] == captured[0] + 1
    assert job.steps(0) == []
    job.end()


def test_settings_change_while_the_job_runs_and_who_asked_is_kept(job):
    process = job.begin(0)
    job.control("set", "level=L1", "list=linear")
    job.control("start")
    first = wait_until(lambda: job.steps(0), PATIENCE, "a step")[-1]
    names = {row["name"] for row in job.records(0, first)}
    assert names == {"Functional.linear.0.forward", "Functional.linear.1.forward"}
    job.control("set", "level=mix", "list=[]")
    wait_until(
        lambda: any(row["name"].startswith("Module.") for row in job.records(0, job.steps(0)[-1])),
        PATIENCE,
        "records of modules",
    )
    (stopped,) = job.control("stop")
    assert stopped["said"] == "captures no more" and not stopped["enabled"]
    assert " asked: start: captures from the next step on" in process.output
    log = job.log.read_text()
    assert 'asks of run live: set {"level": "L1", "list": ["linear"]}' in log and "asks of run live: stop" in log
    from msprobe_client import Client

    with Client(job.address) as typed:
        answer = typed.control(RUN, "status")
    assert [note.asked.split()[0] for note in answer.notes] == ["set", "start", "set", "stop"]
    assert all("@" in note.asked_by for note in answer.notes)
    job.end()


def test_what_cannot_be_done_is_refused_by_name_and_changes_nothing(job):
    job.begin(0)
    done = job.ask("control", RUN, "set", "level=L9", check=False)
    assert done.returncode == 3
    (row,) = answers.rows(done.stdout)
    assert row["refused"] and "L9" in row["said"] and row["level"] == "L0"
    (row,) = job.control("status")  # which ends with 0
    assert row["refused"] and "L9" in row["said"]
    done = job.ask("control", RUN, "set", "dump_path=/elsewhere", check=False)
    assert "dump_path cannot be changed while the program runs" in done.stdout
    for arguments, said in (
        ((RUN, "status", "--rank", "7"), 'no process of the run "live" that is rank7 is connected'),
        (("other", "status"), "other"),
    ):
        done = job.ask("control", *arguments, check=False)
        assert done.returncode == 3 and said in done.stderr
    done = job.ask("control", RUN, "next", "none", check=False)
    assert done.returncode == 2 and "next needs a number of steps" in done.stderr
    job.end()


def test_a_field_that_is_settled_is_refused_by_name_with_all_beside_it(job):
    refusals = [
        (("server_token_file=/etc/shadow",), ["server_token_file cannot be changed while the program runs"]),
        (("spool_dir=/tmp",), ['"spool_dir" is no field of the configuration']),
        (("levle=L1",), ['"levle" is no field of the configuration; did you mean "level"?']),
        (("dump_enable=true",), ["dump_enable is switched by start and stop"]),
        (('statistics={"list": ["linear"]}',), ["statistics is a section, whose fields are set by their own names"]),
        (('load={"path": "/", "modules": ["a"]}',), ["load cannot be changed while the program runs"]),
        (
            ("level=L1", "server_ca=/x", "nonsense=1", "memory_ceiling_mb=1"),
            [
                "server_ca cannot be changed while the program runs",
                '"nonsense" is no field of the configuration',
                "memory_ceiling_mb cannot be changed while the program runs",
            ],
        ),
    ]
    job.begin(0)
    for fields, said in refusals:
        done = job.ask("control", RUN, "set", *fields, check=False)
        assert done.returncode == 3, fields
        (row,) = answers.rows(done.stdout)
        assert row["refused"] and row["said"] == "nothing is changed: " + "; ".join(said)
        (now,) = answers.rows(job.ask("control", RUN, "status", check=False).stdout)  # it says of the refusal again
        assert now["level"] == "L0"
    (changed,) = job.control("set", "level=L1", 'slice=[{"dim": 0}]')
    assert changed["said"].startswith('changed: level="L1", slice=[{"dim": 0}]') and changed["level"] == "L1"
    job.end()


def test_who_asks_makes_no_lines_in_the_programs_output(job):
    from msprobe_client import Client

    process = job.begin(0)
    with Client(job.address) as typed:
        wait_until(typed.runs, PATIENCE, "the program is connected")
        typed.control(RUN, "stop", asked_by="mallory\n2026-01-31 12:00:00 (1) [ERROR] loss is NaN\x1b[2J")
    said = "mallory\\n2026-01-31 12:00:00 (1) [ERROR] loss is NaN\\x1b[2J asked: stop"
    process.wait_for(lambda: said in process.output, PATIENCE, "it is said, in one line")
    assert "\x1b" not in process.output
    job.end()


def test_a_program_that_starts_once_can_be_switched_too(job):
    job.begin(0, "--once")
    for _ in range(2):
        before = len(job.steps(0))
        job.control("next", "1")
        wait_until(lambda before=before: len(job.steps(0)) > before, PATIENCE, "a step")
    job.end()


def test_probes_in_a_graph_are_switched_without_a_new_trace(job):
    job.begin(0, "--graph")
    assert job.steps(0) == []
    job.control("next", "1")
    (step,) = wait_until(lambda: job.steps(0), PATIENCE, "a step")
    names = [row["name"] for row in job.records(0, step)]
    assert "Module.2.Linear.forward.0" in names
    done = job.ask("control", RUN, "set", "level=mix", check=False)
    assert "level cannot be changed to 'mix': probes stand in the graph as it was traced" in done.stdout
    job.end()

"""Alarms that leave the server: webhooks that fail at first, a server that is killed, deeper capture, files."""

import base64
import contextlib
import hashlib
import hmac
import json
import sys

import pytest
from harness import answers
from harness.certificates import Authority
from harness.dumps import write_config
from harness.processes import PROGRAMS, Background, external_server, find_binary, free_port, run, wait_until
from harness.receiver import Receiver
from msprobe_client import Client
from msprobe_client.rules_file import read_rules

SECRET = b"0123456789abcdef0123456789abcdef"
PATIENCE = 60
pytestmark = pytest.mark.timeout(240)


class Job:
    """A net in training whose loss is NaN where the test says so."""

    def __init__(self, directory, stack, run_name, **configuration):
        self._directory = directory
        self._say, self._said = directory / f"{run_name}.say", directory / f"{run_name}.step"
        config = write_config(directory / f"{run_name}.json", directory / "dump", run=run_name, **configuration)
        command = [sys.executable, PROGRAMS / "spoken_to.py", "--config", config, self._say, self._said]
        self.process = stack.enter_context(Background(command, directory / f"{run_name}.log"))
        self.process.wait_for(self._said.exists, PATIENCE, "the first step")

    @property
    def step(self):
        return int(self._said.read_text())

    def say(self, word):
        """ "nan": the next step has one; "end"."""
        self._say.write_text(word)
        self.process.wait_for(lambda: not self._say.exists(), PATIENCE, f"it hears {word}")

    def end(self):
        self.say("end")
        self.process.finish(PATIENCE)


def signed(post):
    """Whether the post is signed as Standard Webhooks says."""
    text = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    digest = base64.b64encode(hmac.digest(SECRET, text, hashlib.sha256)).decode()
    return post.headers["webhook-signature"] == f"v1,{digest}"


def test_a_notice_comes_through_failures_redirects_and_a_killed_server(tmp_path, short_directory):
    authority = Authority(tmp_path / "authority")
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(SECRET).decode() + "\n")
    port, address = free_port(), short_directory / "s"
    flags = [
        f"--alarm_webhook=https://localhost:{port}/hooks/alarms?key=1",
        f"--alarm_secret_file={tmp_path / 'secret'}",
        f"--alarm_ca={authority.ca}",
    ]
    with contextlib.ExitStack() as stack:
        elsewhere = stack.enter_context(Receiver())
        with external_server(address, tmp_path / "data", tmp_path / "first.log", *flags) as server:
            job = Job(tmp_path, stack, "told", server=f"unix:{address}", task="statistics", level="L0", step=[0])
            job.say("nan")
            with Client(f"unix:{address}") as client:
                wait_until(lambda: "told" in [each.run for each in client.runs()], PATIENCE, "the run is known")
                (alarm,) = wait_until(lambda: list(client.monitor.alarms("told")), PATIENCE, "the alarm is stored")
            follow = [find_binary("msprobe-client"), "--server", f"unix:{address}", "alarms", "told", "--follow"]
            follower = stack.enter_context(Background([*follow, "--format", "json"], tmp_path / "followed.json"))
            follower.wait_for(lambda: "not-finite" in follower.output, PATIENCE, "it is shown")
            wait_until(lambda: "Connection refused" in (tmp_path / "first.log").read_text(), PATIENCE, "an attempt")
            server.kill()
        failing = [503, f"http://127.0.0.1:{elsewhere.port}/", 500]
        certificate = authority.sign("receiver")
        with (
            Receiver(port, certificate, failing) as receiver,
            external_server(address, tmp_path / "data", tmp_path / "second.log", *flags),
        ):
            first = wait_until(lambda: receiver.taken, PATIENCE, "it is taken")[0]
            same = [post for post in receiver.posts if post.headers["webhook-id"] == first.headers["webhook-id"]]
            assert [post.status for post in same] == [503, 302, 500, 200]
            assert {post.body for post in same} == {first.body}, "every attempt says the same"
            assert all(signed(post) for post in receiver.posts)
            assert elsewhere.posts == [], "redirects are not followed"
            body = json.loads(first.body)
            data = body["data"]
            assert (first.path, body["type"]) == ("/hooks/alarms?key=1", "alarm.raised")
            assert (data["run"], data["rule"], data["series"], data["rank"]) == ("told", "not-finite", "loss", "rank0")
            assert (data["step"], data["value"], data["ended"]) == (alarm.step, "NaN", None)
            assert abs(first.at - int(first.headers["webhook-timestamp"])) < 60, "of the attempt"
            job.end()
            last = wait_until(
                lambda: [post for post in receiver.taken if b'"alarm.ended"' in post.body], PATIENCE, "its end is told"
            )[0]
            assert json.loads(last.body)["data"]["ended"] is not None
            identities = [post.headers["webhook-id"] for post in receiver.taken]
            assert len(identities) == len(set(identities)), "nothing that was taken is sent again"
            assert follower.process.wait(PATIENCE) == 1, follower.output
        assert "waiting for it" in follower.output, "it says that the server went away"
        lines = [line for line in follower.output.splitlines() if not line.startswith("msprobe-client: ")]
        ended = [row["ended"] for row in json.loads("".join(lines))["rows"]]
        assert ended[0] is None, "shown before the server was killed"
        assert ended[-1] is not None, "shown after it"
        assert len(ended) == len(set(ended)), "nothing is shown twice"
        log = (tmp_path / "second.log").read_text()
        assert "it answered 302, and redirects are not followed" in log
        assert "key=1" not in log, "the URL may hold a secret"


def test_a_certificate_of_somebody_else_is_not_trusted(tmp_path, short_directory):
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    address = short_directory / "s"
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver(0, theirs.sign("receiver")))
        flags = [f"--alarm_webhook=https://localhost:{receiver.port}/", f"--alarm_ca={ours.ca}"]
        metrics = free_port()
        flags.append(f"--metrics_listen=127.0.0.1:{metrics}")
        stack.enter_context(external_server(address, tmp_path / "data", tmp_path / "server.log", *flags))
        job = Job(tmp_path, stack, "wary", server=f"unix:{address}", level="L0", step=[0])
        job.say("nan")
        log = tmp_path / "server.log"
        wait_until(lambda: "certificate verify failed" in log.read_text(), PATIENCE, "the server refuses")
        assert receiver.posts == []
        import urllib.request

        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as answer:
            shown = answer.read().decode()
        assert 'msprobe_notices_total{receiver="webhook",result="failed"}' in shown
        assert 'msprobe_notices_waiting{receiver="webhook"} 1' in shown
        job.end()


def test_settings_that_cannot_work_stop_the_start(tmp_path):
    (tmp_path / "short").write_text("too short")
    server = [find_binary("msprobe-server"), "--listen", f"unix:{tmp_path}/s", "--data_dir", tmp_path / "d"]
    for flag, said in (
        ("--alarm_webhook=ftp://a/", "it has neither http:// nor https://"),
        ("--alertmanager=http://user:word@a/", "it names a user"),
        (f"--alarm_secret_file={tmp_path / 'short'}", "its secret has 9 bytes; it should have at least 16"),
        ("--alarm_ca=/nowhere.pem", "it is empty or cannot be read"),
    ):
        done = run([*server, flag], check=False)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert "too short" not in done.stderr


RULES = """\
rules:
- name: loss-is-finite
  series: loss
  silent: true
  capture: {level: mix, task: statistics, steps: 2, budget: {times: 1}}
  not_finite: {}
"""


def test_a_nan_has_the_next_steps_captured_deeper_and_then_goes_on_as_before(tmp_path, short_directory):
    address = f"unix:{short_directory / 's'}"
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        told = f"--alarm_webhook=http://127.0.0.1:{receiver.port}/"
        log = tmp_path / "server.log"
        stack.enter_context(external_server(short_directory / "s", tmp_path / "data", log, told))
        client = stack.enter_context(Client(address))
        job = Job(tmp_path, stack, "deep", server=address, level="L0")
        (tmp_path / "rules.yaml").write_text(RULES)
        wait_until(lambda: [each for each in client.runs() if each.run == "deep"], PATIENCE, "the run has begun")
        client.monitor.set_rules("deep", read_rules(tmp_path / "rules.yaml"))
        job.say("nan")

        def captured():
            found = list(client.monitor.alarms("deep"))
            return found[0].captured if found and found[0].captured and found[0].captured.processes else None

        deep = wait_until(captured, PATIENCE, "the job obeys")
        first, last = deep.steps
        assert (deep.asked, deep.processes, last) == ("the next 2 steps, level mix, task statistics", 1, first + 1)
        job.process.wait_for(lambda: job.step > last + 2, PATIENCE, "steps behind it")

        def names(step):
            asked = ["records", "deep", "--step", step, "--format", "json"]
            done = run([sys.executable, "-m", "msprobe_client", "--server", address, *asked])
            return {row["name"].split(".")[0] for row in answers.rows(done.stdout)}

        done = {step.step for step in client.steps("deep") if step.state == "complete"}
        assert {first - 1, first, last, last + 1} <= done, "the job's own steps are captured as ever"
        assert names(first - 1) == names(last + 1) == {"Module"}, "level L0"
        assert names(first) == names(last) > {"Module", "Functional"}, "calls of APIs, too: linear and the loss's"
        (note,) = client.control("deep", "status").notes
        assert note.asked.startswith('deeper 2 {"level": "mix", "task": "statistics"}')
        assert note.asked_by == "rule loss-is-finite, alarm 1"
        assert job.process.output.count("rule loss-is-finite, alarm 1 asked: deeper: captures the next 2 steps") == 1

        client.monitor.set_rules("deep", read_rules(_other_name(tmp_path)))  # a rule of its own has its own budget
        job.say("nan")
        wait_until(lambda: len(list(client.monitor.alarms("deep"))) == 2, PATIENCE, "the other rule's alarm")
        job.end()
        ended = wait_until(
            lambda: [a for a in client.monitor.alarms("deep") if a.ended_unix_us and a.number == 1], PATIENCE, "its end"
        )
        assert ended[0].captured.bytes > 0, "what the two steps took"
        assert receiver.posts == [], "a silent rule"


def _other_name(directory):
    path = directory / "others.yaml"
    path.write_text(RULES.replace("loss-is-finite", "loss-is-a-number"))
    return path


def test_anomaly_files_are_those_of_the_other_tool(tmp_path, short_directory):
    address = f"unix:{short_directory / 's'}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log"))
        job = Job(tmp_path, stack, "files", server=address, level="L0", step=[0])
        job.say("nan")
        ask = [sys.executable, "-m", "msprobe_client", "--server", address, "alarms", "files"]
        wait_until(lambda: run(ask, check=False).returncode == 1, PATIENCE, "the alarm")
        job.end()
        done = run([*ask, "--to", "anomaly", "--output", tmp_path / "out"], check=False)
        assert done.returncode == 1 and "anomaly_analyse.json is written" in done.stdout + done.stderr
        whole = json.loads((tmp_path / "out" / "rank0" / "anomaly.json").read_text())
        assert json.loads((tmp_path / "out" / "anomaly_analyse.json").read_text()) == whole
        ((key, anomaly),) = whole.items()
        assert key == f"0:loss/rank0_step_{anomaly['step']}_call_1"
        said = "Rule not-finite reports anomaly signal in ('0:loss/rank0', 'value') at step"
        assert anomaly["message"].startswith(said)
        # The other tool's reader takes them.
        from msprobe.core.monitor.anomaly_processor import first_anomalies

        assert first_anomalies(tmp_path / "out", [], 8) == [anomaly]
        done = run([*ask, "--to", "anomaly"], check=False)
        assert done.returncode == 2 and "go together" in done.stderr

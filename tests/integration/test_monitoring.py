"""Scalars from the program to every format, and the alarms of rules over them, with the real agent and server."""

import csv
import io
import json
import math
import pathlib
import re
import sys
import textwrap

import pyarrow.parquet
import pytest
from harness import answers
from harness.dumps import write_config
from harness.processes import PROGRAMS, external_server, run, wait_until
from msprobe_client import Client
from msprobe_client.rules_file import read_rules

RUN = "watched"
DOCS = pathlib.Path(__file__).parents[2] / "docs"


class Watched:
    def __init__(self, directory, address, client, printed):
        self.directory, self.address, self.client = directory, address, client
        found = [re.findall(r"LOSS (\d+) (\S+)", out) for out, _ in printed]
        self.losses = [{int(step): float(value) for step, value in losses} for losses in found]
        self.warnings = printed[0][1]

    def ask(self, *arguments, check=True):
        command = [sys.executable, "-m", "msprobe_client", "--server", self.address, *arguments]
        return run(command, check=check)

    def series(self, *arguments):
        done = self.ask("series", RUN, "--format", "json", *arguments)
        return {row["name"]: row for row in answers.rows(done.stdout)}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A job of 20 steps with a NaN at step 17, and the same restarted at step 15."""
    directory = tmp_path_factory.mktemp("watched")
    address = f"unix:{directory}/s"
    with external_server(directory / "s", directory / "data", directory / "server.log"), Client(address) as client:
        printed = []
        for first, more in ((0, ["--nan", 17]), (15, [])):
            config = write_config(
                directory / f"config{first}.json", directory / "dump", server=address, run=RUN, step=[3], level="mix"
            )
            program = [sys.executable, PROGRAMS / "monitored.py", "--config", config, "--first", first, *more]
            done = run(program, timeout=180)
            printed.append((done.stdout, done.stdout + done.stderr))
        yield Watched(directory, address, client, printed)


def test_every_kind_of_number_is_there_whatever_is_captured(watched):
    found = {series.name: series for series in watched.client.monitor.series(RUN)}
    assert set(found) == {"loss", "lr", "step/double", "device", "integer", "numpy", "eval", "good", "infinite", "bool"}
    assert found["device"].values == (0.25,) * 35
    assert found["integer"].values == tuple(range(35))
    assert found["numpy"].values == (0.5,) * 35
    assert found["step/double"].values == tuple(2.0 * step for step in range(35))
    assert found["eval"].values == tuple(10.0 * step for step in range(35))
    assert (found["infinite"].values, found["bool"].values) == ((-math.inf, -math.inf), (1.0, 1.0))
    assert [step.step for step in watched.client.steps(RUN)] == [3], "scalars open no step"


def test_the_restarted_job_is_shown_from_its_first_step_on(watched):
    (loss,) = watched.client.monitor.series(RUN, "loss")
    first, second = watched.losses
    wanted = {**first, **second}
    assert loss.steps == tuple(range(35))
    assert loss.values == pytest.approx([wanted[step] for step in range(35)], rel=1e-6)


def test_what_is_wrong_is_named_and_left_out(watched):
    for text in (
        "'vector' is a tensor of shape [2]",
        "'text' is of type str; it should be a number",
        "a name is ''; it should be a text",
        "a name is 3;",
        "'complex' is of type complex",
        "'none' is of type NoneType",
        "'bad' is of type list",
        "step is -1; it should be an int from 0",
        "the values are a list; they should be a dict",
        "'huge' is an integer of 1329 bits, which no float64 holds",
    ):
        assert f"log: {text}" in watched.warnings, text


def test_the_formats_hold_the_same_points(watched, tmp_path):
    (loss,) = watched.client.monitor.series(RUN, "loss")
    table = watched.ask("series", RUN).stdout.splitlines()
    assert table[0].split()[:3] == ["NAME", "RANK", "POINTS"]
    assert len(table) == 11
    whole = watched.series()["loss"]
    assert (tuple(whole["step"]), tuple(whole["value"])) == (loss.steps, loss.values)
    assert watched.series("--step", "10-12", "--name", "l*")["loss"]["step"] == [10, 11, 12]
    text = watched.ask("series", RUN, "--name", "loss", "--format", "csv").stdout
    assert [float(row["value"]) for row in csv.DictReader(io.StringIO(text))] == list(loss.values)
    watched.ask("series", RUN, "--name", "loss", "--format", "parquet", "--output", tmp_path / "s.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "s.parquet")["value"].to_pylist() == list(loss.values)
    assert len(watched.series("--points", "9")["step/double"]["step"]) <= 9


def test_event_files_are_read_by_tensorboard(watched, tmp_path):
    watched.ask("series", RUN, "--name", "loss", "--format", "tensorboard", "--output", tmp_path / "events")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (rank,) = (tmp_path / "events").iterdir()
    events = EventAccumulator(str(rank))
    events.Reload()
    (loss,) = watched.client.monitor.series(RUN, "loss")
    read = events.Scalars("loss")
    assert [event.step for event in read] == list(loss.steps)
    assert [event.value for event in read] == pytest.approx(loss.values, rel=1e-6)


def test_a_trend_has_scalars_behind_tensors(watched):
    done = watched.ask("trend", RUN, "*lo*", "--step", "2-3", "--format", "json")
    assert [(row["name"], row["statistic"], row["step"]) for row in answers.rows(done.stdout)] == [
        ("loss", None, [2, 3])
    ]
    done = watched.ask("trend", RUN, "*", "--step", "3", "--format", "json")
    names = [row["name"] for row in answers.rows(done.stdout)]
    assert names[0].startswith("Functional.linear.0.") and names[-1] == "step/double"
    beside = answers.rows(watched.ask("trend", RUN, "lr", "--diff", RUN, "--format", "json").stdout)
    assert beside[0]["golden"] == beside[0]["value"]


def test_bad_questions_are_one_line(watched):
    for arguments, code, text in (
        (("series", RUN, "--name", "nothing*"), 0, "no such scalars"),
        (("series", "other"), 3, 'no run "other"'),
        (("series", RUN, "--points", "2"), 2, "2 is too few; 0 or at least 3"),
        (("series", RUN, "--format", "tensorboard"), 2, "name it"),
        (("alarms", "other"), 3, 'no run "other"'),
    ):
        done = watched.ask(*arguments, check=False)
        said = " ".join((done.stdout + done.stderr).replace("│", " ").split())
        assert (done.returncode, text in said) == (code, True), said


def test_the_nan_of_the_first_session_raised_an_alarm(watched):
    done = watched.ask("alarms", RUN, "--format", "json", check=False)
    assert done.returncode == 1
    (alarm,) = answers.rows(done.stdout)
    assert (alarm["rule"], alarm["series"], alarm["step"], alarm["others"]) == ("not-finite", "loss", 17, ["infinite"])
    assert (alarm["recent"][-2][0], math.isnan(float(alarm["value"]))) == (16, True)
    done = watched.ask("alarms", RUN, "--follow", check=False)  # the run has ended
    assert (done.returncode, done.stdout.splitlines()[0].split()[0]) == (1, "RULE")


def test_rules_are_changed_while_the_server_runs(watched, tmp_path):
    def example(page):
        return textwrap.dedent(re.search(r"<!-- example: rules -->\n((?:    .*\n)+)", (DOCS / page).read_text())[1])

    def rules(*arguments):
        return answers.rows(watched.ask("rules", RUN, "--format", "json", *arguments).stdout)

    built_in = rules()
    assert [rule["name"] for rule in built_in] == [
        "not-finite",
        "loss-jumps",
        "gradient-explodes",
        "gradient-is-zero",
        "update-too-large",
        "weight-poisoned",
        "rank-differs",
        "experts-collapse",
        "attention-collapses",
        "overfit",
        "ill-response",
    ]
    documented, saved = tmp_path / "rules.yaml", tmp_path / "saved.yaml"
    documented.write_text(example("responses.md"))
    (changed,) = rules("--set", documented)
    assert changed["kind"] == "ill_response"
    assert changed["parameters"] == "repeat_single_windows: 4, repeat_both_windows: 0"
    documented.write_text(example("monitoring.md"))
    changed = rules("--set", documented, "--save", saved)
    assert changed[0] == {
        "name": "loss-jumps",
        "kind": "z_score",
        "series": "*loss*",
        "parameters": "threshold: 8, patience: 3, above_only: true",
    }
    assert read_rules(saved) == read_rules(documented)
    assert changed[-1]["parameters"] == 'if: lr > 0.01 and "train/loss" > 5'
    documented.write_text("rules:\n- {name: a, zscore: {}}\n")
    done = watched.ask("rules", RUN, "--set", documented, check=False)
    assert (done.returncode, "zscore" in done.stderr) == (3, True)
    documented.write_text("rules:\n- {name: a, ill_response: {rare_mass: 2}}\n")
    done = watched.ask("rules", RUN, "--set", documented, check=False)
    assert (done.returncode, 'rule "a": ill_response.rare_mass is 2' in done.stderr) == (3, True)
    documented.write_text('rules:\n- {name: a, expression: {if: "lr >"}}\n')
    done = watched.ask("rules", RUN, "--set", documented, check=False)
    assert (done.returncode, 'rule "a": expression.if is lr >: near' in done.stderr) == (3, True)
    documented.write_text("rules:\n- {name: a, z_score: {threshold: -1}}\n")
    done = watched.ask("rules", RUN, "--set", documented, check=False)
    assert (done.returncode, 'rule "a": z_score.threshold is -1' in done.stderr) == (3, True)
    assert rules("--reset") == built_in


def test_a_file_of_rules_that_is_wrong_stops_the_start(tmp_path):
    from harness.processes import find_binary

    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [{"name": "a", "series": "x", "threshold": {}}]}))
    server = [find_binary("msprobe-server"), "--listen", f"unix:{tmp_path}/s", "--data_dir", tmp_path / "d"]
    done = run([*server, "--rules", rules], check=False)
    assert done.returncode != 0
    assert "threshold has neither above nor below" in done.stderr


def test_a_nan_among_candidates_raises_an_alarm_and_a_forbidden_one_does_not(tmp_path):
    address = f"unix:{tmp_path}/s"
    config = write_config(tmp_path / "config.json", tmp_path / "dump", server=address, run="chat", dump_enable=False)
    with external_server(tmp_path / "s", tmp_path / "data", tmp_path / "server.log"), Client(address) as client:
        run([sys.executable, PROGRAMS / "replies.py", "--config", config])
        (alarm,) = wait_until(lambda: list(client.monitor.alarms("chat")), 60, "the alarm")
        assert (alarm.series, alarm.step, alarm.offences) == ("response/fault", 1, 1)
        assert alarm.why == "token 1 has a log-probability that is not finite"
        assert not client.steps("chat"), "tokens open no step"

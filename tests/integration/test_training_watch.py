"""msprobe.watch: series of weights, gradients and optimizer of a real training, and the rules over them."""

import json
import re
import sys

import pytest
from harness import answers
from harness.processes import PROGRAMS, external_server, run
from msprobe_client import Client

PROGRAM = PROGRAMS / "watched_training.py"
RULES = [
    {"name": "exploding", "exploding": {"limit": 1e4}},
    {"name": "vanishing", "vanishing": {"limit": 1e-10}},
    {"name": "all-zero", "allZero": {}},
    {"name": "unchanged", "series": "*.weight.parameter:norm", "unchanged": {}},
    {"name": "update-ratio", "updateRatio": {}},
    {"name": "not-finite", "notFinite": {}},
]


class Trained:
    def __init__(self, directory):
        self.directory, self.address = directory, f"unix:{directory}/s"

    def train(self, run_name, *arguments, **section):
        config = self.directory / f"{run_name}.json"
        fields = {"task": "monitor", "dump_path": str(self.directory / "dump"), "server": self.address, "run": run_name}
        config.write_text(json.dumps(fields | {"monitor": section}))
        done = run([sys.executable, PROGRAM, "--config", config, *arguments], timeout=120)
        return done.stdout

    def series(self, run_name, name="*"):
        with Client(self.address) as client:
            return {series.name: series for series in client.monitor.series(run_name, name)}

    def alarms(self, run_name):
        command = [sys.executable, "-m", "msprobe_client", "--server", self.address, "alarms", run_name]
        return answers.rows(run([*command, "--format", "json"], check=False).stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("watch")
    rules = directory / "rules.json"
    rules.write_text(json.dumps({"rules": RULES}))
    with external_server(directory / "s", directory / "data", directory / "log", "--rules", rules):
        trained = Trained(directory)
        trained.healthy = trained.train("healthy", "--fused")
        trained.ill = trained.train("ill", "--ill")
        yield trained


def test_a_run_that_is_watched_computes_the_same_bits(trained):
    plain = run([sys.executable, PROGRAM, "--fused"]).stdout
    assert re.search("HASH .*", trained.healthy)[0] == re.search("HASH .*", plain)[0]


def test_every_kind_of_series_is_there_for_every_step(trained):
    found = trained.series("healthy", "first.weight.*:norm")
    assert set(found) == {
        "first.weight.parameters_grad.reduced:norm",
        "first.weight.parameters_grad.clipped:norm",
        "first.weight.parameter:norm",
        "first.weight.exp_avg:norm",
        "first.weight.exp_avg_sq:norm",
    }
    assert {series.steps for series in found.values()} == {tuple(range(12))}
    (last,) = trained.series("healthy", "update_ratio/last.weight").values()
    assert all(0 < value < 0.1 for value in last.values)
    norm = float(re.search("NORM (.*)", trained.healthy)[1])
    assert found["first.weight.parameter:norm"].values[-1] == pytest.approx(norm, rel=1e-6)
    kinds = {name.rpartition(":")[2] for name in trained.series("healthy", "last.bias.*")}
    assert kinds == {"min", "max", "mean", "norm", "nan"}


def test_activations_are_captured_every_tenth_step(trained):
    with Client(trained.address) as client:
        assert [step.step for step in client.steps("healthy")] == [0, 10]


def test_a_healthy_run_raises_no_alarm(trained):
    assert trained.alarms("healthy") == []


def test_planted_illnesses_are_named_by_their_rules(trained):
    alarms = {alarm["rule"]: alarm for alarm in trained.alarms("ill")}
    assert set(alarms) == {"exploding", "vanishing", "all-zero", "unchanged", "update-ratio"}
    assert (alarms["exploding"]["step"], alarms["exploding"]["value"] > 1e4) == (6, True)
    assert alarms["vanishing"]["series"].startswith("vanishing.")
    assert alarms["all-zero"]["series"].startswith("dead.")
    assert {alarms["all-zero"]["step"], alarms["vanishing"]["step"]} == {2}, "the third point in a row"
    for rule, ill, well in (
        ("unchanged", ("frozen.weight.parameter:norm", "dead.weight.parameter:norm"), "first.weight.parameter:norm"),
        ("update-ratio", ("update_ratio/frozen.weight", "update_ratio/dead.weight"), "update_ratio/first.weight"),
    ):
        named = {alarms[rule]["series"], *alarms[rule]["others"]}
        assert set(ill) <= named and well not in named, rule


def test_sections_and_lists_choose(trained):
    trained.train(
        "chosen",
        "--optimizer",
        "SGD",
        list=["last", "name-regex(^first.*bias$)"],
        interval=3,
        activations=0,
        ops=["rms", "zero_share"],
        parameters=False,
        micro_batches=True,
        update_ratio=False,
    )
    found = trained.series("chosen")
    assert set(found) == {
        f"{name}.parameters_grad.{stage}:{op}"
        for name in ("last.weight", "last.bias", "first.bias")
        for stage in ("micro_batch.0", "micro_batch.1", "reduced", "clipped")
        for op in ("rms", "zero_share")
    }
    assert {series.steps for series in found.values()} == {(0, 3, 6, 9)}

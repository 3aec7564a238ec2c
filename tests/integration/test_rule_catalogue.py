"""Rules over real trainings: healthy runs raise no alarm, and each planted illness is named by its rule at its step."""

import json
import sys

import pytest
from harness.processes import PROGRAMS, external_server, run
from msprobe_client import Client

sys.path.insert(0, str(PROGRAMS))
import rule_catalogue

PROGRAM = PROGRAMS / "rule_runs.py"
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]


def train(directory, group, *flags):
    """The alarms of each run of a group, in order of step."""
    address = f"unix:{directory}/s"
    with external_server(directory / "s", directory / "data", directory / "log", *flags), Client(address) as client:
        run([sys.executable, PROGRAM, directory, address, group], timeout=600)
        built_in = [json_of(rule) for rule in client.monitor.rules(next(iter(getattr(rule_catalogue, group)))).rules]
        alarms = {name: sorted(client.monitor.alarms(name), key=lambda alarm: alarm.step) for name in runs_of(group)}
    return alarms, built_in


def runs_of(group):
    return list(getattr(rule_catalogue, group))


def json_of(rule):
    from google.protobuf import json_format

    return json_format.MessageToDict(rule)


def lines(alarms):
    return [f"{each.rule} at step {each.step}, {each.rank}, {each.series}: {each.why}" for each in alarms]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return train(tmp_path_factory.mktemp("healthy"), "HEALTHY")


@pytest.fixture(scope="module")
def ill(tmp_path_factory, healthy):
    directory = tmp_path_factory.mktemp("ill")
    rules = directory / "rules.json"
    rules.write_text(json.dumps({"rules": [*healthy[1], *rule_catalogue.RULES]}))
    return train(directory, "ILL", "--rules", rules)[0]


def test_healthy_runs_raise_no_alarm(healthy):
    assert len(healthy[0]) >= 20
    assert {name: lines(alarms) for name, alarms in healthy[0].items() if alarms} == {}


def test_there_are_enough_illnesses_for_all_that_is_promised():
    assert len(rule_catalogue.ILL) >= 30
    assert {options["net"] for options in rule_catalogue.ILL.values()} == {"mlp", "cnn", "lstm", "gpt2", "moe"}


@pytest.mark.parametrize("name", runs_of("ILL"))
def test_an_illness_is_named_by_its_rule_at_its_step(ill, name):
    options, alarms = rule_catalogue.ILL[name], ill[name]
    named = [alarm for alarm in alarms if alarm.rule == options["rule"]]
    assert named, lines(alarms)
    shown = options.get("shown", options["at"])
    assert shown <= named[0].step <= shown + rule_catalogue.ALLOWED, lines(alarms)
    assert alarms[0].step >= options["at"], lines(alarms)
    if "rank" in options:
        assert named[0].rank.number == options["rank"], lines(alarms)

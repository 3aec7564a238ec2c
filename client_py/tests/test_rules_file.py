"""Files of rules: what they may say, and the one line about what they may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from msprobe_client.errors import InvalidArgument
from msprobe_client.proto import monitor_pb2
from msprobe_client.rules_file import read_rules, rule_rows, rules_text

Read = Callable[[str], monitor_pb2.RuleSet]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> monitor_pb2.RuleSet:
        (tmp_path / "rules.yaml").write_text(text)
        return read_rules(tmp_path / "rules.yaml")

    return read


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            "{name: a, exploding: {limt: 3}}",
            "rule 'a' has no field 'exploding.limt'; there are limit, factor, window, warm_up",
        ),
        ("{name: a, exploding: {limit: tall}}", "rule 'a' has exploding.limit: 'tall'; it should be a number"),
        ("{name: a, exploding: {limit: .nan}}", "rule 'a' has exploding.limit: nan; it should be a number"),
        ("{name: a, exploding: {limit: true}}", "rule 'a' has exploding.limit: True; it should be a number"),
        (
            "{name: a, exploding: {window: -1}}",
            "rule 'a' has exploding.window: -1; it should be a whole number from 0 to 4294967295",
        ),
        ("{name: a, exploding: {window: 1.5}}", "rule 'a' has exploding.window: 1.5; it should be a whole number"),
        (
            "{name: a, exploding: 3}",
            "rule 'a' has exploding: 3; it should be fields with values: limit, factor, window, warm_up",
        ),
        ("{name: a, exploding: {}, vanishing: {}}", "rule 'a' is both exploding and vanishing; write two rules"),
        ("{name: a, silent: 1, exploding: {}}", "rule 'a' has silent: 1; it should be true or false"),
        ("{name: 5, exploding: {}}", "rule 1 has name: 5; it should be a text"),
        ("{nam: a}", "rule 1 has no field 'nam'; there are name, series, silent"),
        ("only text", "rule 1 is 'only text'; it should be fields with values: name, series"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(read: Read, rule: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read(f"rules:\n- {rule}\n")
    assert said in str(raised.value) and "\n" not in str(raised.value)
    assert "rules.yaml: rule" in str(raised.value)


@pytest.mark.parametrize("text", ["rules: 3", "- a", "", "rules: []\nrule: []"])
def test_a_file_of_something_else_is_refused(read: Read, text: str) -> None:
    with pytest.raises(InvalidArgument, match="has no list of rules; it should begin with 'rules:'"):
        read(text)


def test_both_spellings_and_numbers_as_yaml_reads_them(read: Read) -> None:
    found = read("rules: [{name: a, zScore: {warm_up: 3, threshold: 1e4}}, {name: b, series: x, not_finite: }]")
    first, second = found.rules
    assert (first.z_score.warm_up, first.z_score.threshold) == (3, 1e4)
    assert second.WhichOneof("kind") == "not_finite"
    assert read(rules_text(found)) == found
    assert read(json.dumps({"rules": [{"name": "a", "zScore": {"warmUp": 3, "threshold": 1e4}}]})).rules[0] == first


def test_the_table_writes_values_as_the_file_does(read: Read) -> None:
    found = read("rules: [{name: a, z_score: {threshold: 1e4, above_only: true}}, {name: b, expression: {if: x > 1}}]")
    assert [row["parameters"] for row in rule_rows(found)] == ["threshold: 10000, above_only: true", "if: x > 1"]

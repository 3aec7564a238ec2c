"""analyze_output_anomaly beside that of mindstudio-probe, over replies that replies.py makes up."""

import collections
import json
import pathlib
import shutil
import sys

import msprobe.response_anomaly as package
import pytest
from harness.processes import REPOSITORY, run_with
from msprobe._common.errors import MsprobeError
from msprobe.response_anomaly import analyze_output_anomaly
from replies import loop, text

SCRIPT = pathlib.Path(__file__).with_name("replies.py")


@pytest.fixture(scope="module")
def verdicts(oracle_python):
    return [json.loads(run_with(python, SCRIPT).stdout) for python in (sys.executable, oracle_python)]


def test_every_verdict_is_the_same_but_where_a_harmonic_decides(verdicts):
    ours, real = verdicts
    assert ours.keys() == real.keys() and len(ours) > 200
    differ = {name: (ours[name], real[name]) for name in ours if ours[name] != real[name]}
    assert differ, "no reply has a harmonic between 0 and half of the threshold"
    assert all(name.startswith("weak-harmonic") for name in differ)
    assert set(map(str, differ.values())) == {str(([False, 0], [True, 3]))}
    assert min(collections.Counter(fault for _, fault in real.values()).values()) > 5, "every fault is among them"


CUT = """
from msprobe.response_anomaly import analyze_output_anomaly
many = {token: -5.2 for token in range(80)}
print(analyze_output_anomaly([[{1: -0.1}], [dict(many) for _ in range(64)]], [[1], [1] * 64], None))
"""


def test_a_reply_with_few_candidates_cuts_those_of_no_other(oracle_python):
    ours, real = (run_with(python, "-c", CUT).stdout.strip() for python in (sys.executable, oracle_python))
    assert real == "[[False, 0], [True, 2]]", "it takes one candidate of 80, as the first reply has"
    assert ours == "[[False, 0], [False, 0]]"


def test_a_vocabulary_is_used_where_the_model_and_the_last_token_are_known(tmp_path, monkeypatch):
    shutil.copytree(package._PACKAGE / "configs", tmp_path / "configs")
    (tmp_path / "token2category").mkdir()
    (tmp_path / "configs" / "mtype_config.json").write_text('{"tiny-1-5b": {"bos": 0, "eos": [7, 8]}}')
    kinds = {1: "emoji", 2: "thai", 3: "greek", 4: "punctuation", 5: "english_latin", 6: "english_latin_space"}
    path = tmp_path / "token2category" / "tiny-1-5b_100.json"
    path.write_text(json.dumps({**kinds, 300: "arabic"}))
    monkeypatch.setattr(package, "_PACKAGE", tmp_path)

    def judge(ids, last=7, model="Tiny_1.5B-Instruct"):
        return analyze_output_anomaly([[dict.fromkeys(ids, -5.5)] * 2], [[1, last]], [model])[0][1]

    assert judge([1, 2, 3]) == 1, "three kinds"
    assert judge([1, 2, 4]) == 0, "punctuation is no kind"
    assert judge([1, 5, 6]) == 0, "Latin is one kind"
    assert judge([1, 2, 300]) == 0, "a token behind the vocabulary has no kind"
    assert judge([1, 2, 3], last=9) == 0, "the reply does not end"
    assert judge([1, 2, 3], model={"model_name": "other"}) == 0
    assert judge([1, 2, 3], model={}) == 0
    path.write_text('{"x": 1}')
    with pytest.raises(MsprobeError, match=r"tiny-1-5b_100.json: token 'x' is of kind 1; it should be"):
        judge([1, 2, 3])


TOPK, IDS = text(0, 2)


def test_candidates_may_vanish_while_they_are_read():
    class Emptying:
        def __init__(self, candidates):
            self.candidates = candidates

        def __float__(self):
            self.candidates.clear()
            return -0.5

    class Token:
        def __index__(self):
            return 3

    candidates = {}
    candidates.update({Token(): Emptying(candidates) for _ in range(8)})
    assert package.analyze_output_anomaly([[candidates]], [[3]]) == [[False, 0]]


@pytest.mark.parametrize(
    ("topk", "tokens", "message"),
    [
        (None, [[1]], "topk_logprobs is of type NoneType; it should be a list"),
        ([TOPK], "ab", "tokens is of type str; it should be a list"),
        ([None], [IDS], r"topk_logprobs\[0\] is of type NoneType; it should be a list"),
        ([TOPK], [IDS[:1]], "reply 0 has 1 tokens and log-probabilities of 2; it should have as many of both"),
        (
            [[None, TOPK[1]]],
            [IDS],
            r"reply 0, topk_logprobs\[0\] is of type NoneType; it should be a dict of token ids",
        ),
        ([[TOPK[0], {}]], [IDS], r"reply 0, topk_logprobs\[1\] is empty; it should have one log-probability or more"),
        ([[TOPK[0], {1: "x"}]], [IDS], r"topk_logprobs\[1\] gives token 1 'x'; it should be a log-probability"),
        ([[TOPK[0], {"a": -1}]], [IDS], r"a key of reply 0, topk_logprobs\[1\] is 'a'; it should be a token id"),
        ([TOPK], [[1, None]], r"reply 0, tokens\[1\] is None; it should be a token id"),
        ([TOPK, [{1: None}]], [IDS, [1]], r"reply 1, topk_logprobs\[0\] gives token 1 None"),
        ([TOPK], [IDS, IDS], "topk_logprobs has 1 replies and tokens 2; give as many"),
    ],
)
def test_what_is_wrong_is_named(topk, tokens, message):
    with pytest.raises(MsprobeError, match=message) as raised:
        analyze_output_anomaly(topk, tokens)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stride: 64", "stride: 200", "stride is 200; it should be at most window_size, which is 128"),
        ("window_ratio: 0.2", "window_ratio: 2", r"garbled.window_ratio is 2; it should be from 0 to 1"),
        ("    n: 3", "    n: x", "repetition.trajectory.n is 'x'; it should be an int of 1 or more"),
        ("window_size: 128", "{", "config.yaml is no YAML"),
        ("window_size: 128", "window_size: 9000", "window is 9000; it should be from 1 to 4096"),
    ],
)
def test_a_wrong_threshold_is_named(tmp_path, monkeypatch, field, value, message):
    shutil.copytree(package._PACKAGE / "configs", tmp_path / "configs")
    config = tmp_path / "configs" / "config.yaml"
    config.write_text(config.read_text().replace(field, value, 1))
    monkeypatch.setattr(package, "_PACKAGE", tmp_path)
    with pytest.raises(MsprobeError, match=message):
        analyze_output_anomaly([TOPK], [IDS])


def test_thresholds_that_change_count_from_the_next_call_on(tmp_path, monkeypatch):
    shutil.copytree(package._PACKAGE / "configs", tmp_path / "configs")
    monkeypatch.setattr(package, "_PACKAGE", tmp_path)
    topk, tokens = loop(1, 150, 8)
    assert analyze_output_anomaly([topk], [tokens]) == [[False, 0]]
    config = tmp_path / "configs" / "config.yaml"
    config.write_text(config.read_text().replace("multi_window_thresh: 2", "multi_window_thresh: 1"))
    assert analyze_output_anomaly([topk], [tokens]) == [[True, 3]]


def test_the_example_of_the_document(capsys):
    page = (REPOSITORY / "docs" / "responses.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/responses.md", "exec"), {})
    assert capsys.readouterr().out.strip() == page.split("```text\n")[1].split("```")[0].strip()

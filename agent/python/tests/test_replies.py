"""What the plugin says of the tokens that a runner of vLLM samples."""

import types

import numpy
import pytest
from msprobe_vllm import _replies
from msprobe_vllm._replies import Replies
from msprobe_vllm._settings import judges_replies

# Of each token its own log-probability, then those of its candidates.
LOGPROBS = numpy.array([[-9.0, -0.5, -1.0, -2.0], [-8.0, -0.25, -3.0, -4.0], [-7.0, -0.125, -5.0, -6.0]])


class Agent:
    def __init__(self):
        self.told = []

    def log_tokens(self, step, request, tokens, logprobs):
        self.told.append((step, request, tokens, logprobs))

    def end_response(self, step, request):
        self.told.append((step, request))


class Debugger:
    def __init__(self):
        self.agent = Agent()
        self.service = types.SimpleNamespace(loop=4, init_step=3)

    def agent_for_replies(self):
        return self.agent


def runner(logprobs_mode="raw_logprobs"):
    return types.SimpleNamespace(model_config=types.SimpleNamespace(logprobs_mode=logprobs_mode))


def batch(new=(), ended=()):
    """new: {request: sampling parameters}."""
    requests = [
        types.SimpleNamespace(req_id=request, sampling_params=types.SimpleNamespace(**sampling))
        for request, sampling in dict(new).items()
    ]
    return types.SimpleNamespace(scheduled_new_reqs=requests, finished_req_ids=set(ended))


def output(tokens, starts=None):
    lists = types.SimpleNamespace(logprobs=LOGPROBS, cu_num_generated_tokens=starts)
    return types.SimpleNamespace(req_ids=["a", "b"], sampled_token_ids=tokens, logprobs=lists)


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(_replies, "_is_speaker", lambda: True)
    debugger = Debugger()
    replies = Replies(runner(), debugger)
    replies.scheduled(batch({"a": {"logprobs": 2}, "b": {"logprobs": None}}))
    return replies, debugger


def test_a_request_has_as_many_candidates_as_it_asked_for(made):
    replies, debugger = made
    replies.sampled(output([[1], [2]]))
    assert debugger.agent.told == [(7, "a", [1], [[-0.5, -1.0]]), (7, "b", [2], [])]


def test_drafts_that_were_taken_are_tokens_of_the_step_and_refused_ones_none(made):
    replies, debugger = made
    replies.sampled(output([[1, 5], []], starts=[0, 2]))
    assert debugger.agent.told == [(7, "a", [1, 5], [[-0.5, -1.0], [-0.25, -3.0]])]


def test_what_comes_later_is_told_then_and_belongs_to_its_step(made):
    replies, debugger = made
    result = output([[1], [2]])
    # vLLM's newer runner has tokens there that are not copied yet.
    later = types.SimpleNamespace(get_output=lambda: result, sampled_token_ids="not copied yet")
    replies.sampled(later)
    debugger.service.loop = 9
    assert debugger.agent.told == [] and later.get_output() is result
    assert [step for step, *_ in debugger.agent.told] == [7, 7]


def test_the_end_of_a_request_is_its_last_word(made):
    replies, debugger = made
    later = types.SimpleNamespace(get_output=lambda: output([[1], [2]]))
    replies.sampled(later)
    replies.scheduled(batch(ended=["a", "never seen"]))
    later.get_output()
    assert debugger.agent.told == [(7, "a"), (7, "b", [2], [])]


@pytest.mark.parametrize("sampling", [{"logprobs": 0}, {"logprobs": 5, "logprob_token_ids": [3]}])
def test_without_candidates_there_are_tokens_alone(made, sampling):
    replies, debugger = made
    replies.scheduled(batch({"a": sampling}))
    replies.sampled(output([[1], [2]]))
    assert debugger.agent.told == [(7, "a", [1], []), (7, "b", [2], [])]


def test_logits_are_no_log_probabilities(made):
    _, debugger = made
    replies = Replies(runner("processed_logits"), debugger)
    replies.scheduled(batch({"a": {"logprobs": 2}}))
    replies.sampled(output([[1], [2]]))
    assert debugger.agent.told == [(7, "a", [1], [])]


def test_a_fault_of_ours_reaches_nobody(made):
    replies, debugger = made
    result = types.SimpleNamespace(req_ids=["a"], sampled_token_ids=[["x"]], logprobs=None)
    later = types.SimpleNamespace(get_output=lambda: result)
    replies.sampled(later)
    assert later.get_output() is result and debugger.agent.told == []


def test_ranks_with_the_same_tokens_say_nothing(made, monkeypatch):
    _, debugger = made
    monkeypatch.setattr(_replies, "_is_speaker", lambda: False)
    replies = Replies(runner(), debugger)
    replies.scheduled(batch({"a": {"logprobs": 2}}))
    replies.sampled(output([[1], [2]]))
    replies.scheduled(batch(ended=["a"]))
    assert debugger.agent.told == []


def test_judging_needs_a_server(monkeypatch):
    monkeypatch.delenv("MSPROBE_CONFIG", raising=False)
    assert not judges_replies(None) and not judges_replies({"judge_replies": False})
    assert judges_replies({"judge_replies": True, "dump_config": {}})
    for value, said in (("yes", "is 'yes'; it must be true or false"), (True, "is true; it needs dump_config")):
        with pytest.raises(ValueError, match=said):
            judges_replies({"judge_replies": value})
    monkeypatch.setenv("MSPROBE_CONFIG", "/a.json")
    assert judges_replies({"judge_replies": True})

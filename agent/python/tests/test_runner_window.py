"""What the plugin asks of a debugger around the calls of vLLM's runner, told by what both wrote down."""

import types

import pytest
from msprobe_vllm._runner_window import RunnerWindow


class Debugger:
    """Writes down what is asked of it, in order, into the runner's diary."""

    def __init__(self, diary):
        self.diary = diary

    def start(self, model, scheduled_tokens):
        self.diary.append(("start", scheduled_tokens))

    def stop(self):
        self.diary.append("stop")

    def step(self, dump=True):
        self.diary.append(("step", dump))


class GraphDumper:
    """Has no stop."""

    def __init__(self, diary):
        self.diary = diary

    def start(self, model):
        self.diary.append("start")

    def set_batch(self, batch):
        self.diary.append(("batch", batch))

    def step(self, dump=True):
        self.diary.append(("step", dump))


class Runner:
    """The methods of vLLM's GPUModelRunner that matter: `answer` is what execute_model gives, None where it samples."""

    def __init__(self, answer=None):
        self.diary, self.answer, self.model = [], answer, object()
        self.input_batch = types.SimpleNamespace(req_ids=["a", "b"], num_computed_tokens_cpu=[7, 0])
        self.input_batch.req_id_to_index = {"a": 0, "b": 1}

    def _update_states(self, scheduled):
        self.diary.append("update")

    def load_model(self):
        self.diary.append("load")

    def execute_model(self, scheduled):
        self._update_states(scheduled)
        if not scheduled.num_scheduled_tokens:
            return "empty"
        self.diary.append("forward")
        if self.answer == "raises":
            raise RuntimeError("the model's own")
        return self.answer

    def sample_tokens(self, grammar):
        self.diary += ["sample", "draft"]
        return "tokens"

    def _dummy_run(self, tokens):
        self.diary.append("dummy forward")


def batch(**tokens):
    return types.SimpleNamespace(num_scheduled_tokens=tokens)


def watched(made, debugger=Debugger):
    RunnerWindow(made, debugger(made.diary)).open()
    return made


STEP = ["stop", ("step", True)]


def test_logits_sampling_and_drafting_belong_to_the_step():
    runner = watched(Runner())
    assert runner.execute_model(batch(b=1, a=3)) is None and runner.sample_tokens(None) == "tokens"
    assert runner.diary == ["update", ("start", {"a": 3, "b": 1}), "forward", "sample", "draft", *STEP]


@pytest.mark.parametrize("what", ["what a stage passes on", "an encoder's output", "what was pooled"])
def test_where_nothing_is_sampled_the_step_ends_with_the_forward(what):
    """A stage of a pipeline before the last, an encoder, a pooling model."""
    runner = watched(Runner(answer=what))
    for _ in range(2):
        assert runner.execute_model(batch(a=2)) == what
    assert runner.diary == ["update", ("start", {"a": 2}), "forward", *STEP] * 2


def test_dummy_runs_and_empty_batches_are_never_captured():
    runner = watched(Runner())
    runner._dummy_run(4)
    assert runner.execute_model(batch()) == "empty"
    runner._dummy_run(4)
    assert runner.diary == ["dummy forward", "update", "dummy forward"]


def test_a_dummy_run_inside_a_batch_discards_what_it_left():
    """An idle rank's follows a batch whose sampling never came."""
    runner = watched(Runner())
    runner.execute_model(batch(a=1))
    runner._dummy_run(4)
    assert runner.diary[-3:] == ["dummy forward", "stop", ("step", False)]


def test_a_batch_that_raises_ends_its_step_and_the_error_is_the_models():
    runner = watched(Runner(answer="raises"))
    with pytest.raises(RuntimeError, match="the model's own"):
        runner.execute_model(batch(a=1))
    assert runner.diary[-2:] == STEP
    runner.answer = None
    runner.execute_model(batch(a=1))
    runner.sample_tokens(None)
    assert runner.diary[-2:] == STEP and runner.diary.count("stop") == 2


def test_of_a_graph_the_dumper_is_told_what_each_replay_computes():
    runner = watched(Runner(), GraphDumper)
    runner.load_model()
    runner._dummy_run(4)
    runner.execute_model(batch(b=5, a=1))
    runner.sample_tokens(None)
    assert runner.diary == [
        *("load", "start", "dummy forward", ("step", False)),
        *("update", ("batch", [("a", 1, 7), ("b", 5, 0)]), "forward", "sample", "draft", ("step", True)),
    ]


def test_what_fails_in_the_debugger_does_not_reach_the_engine():
    class Broken(Debugger):
        def start(self, model, scheduled_tokens):
            raise ValueError("broken")

        def step(self, dump=True):
            raise ValueError("broken")

    runner = watched(Runner(), Broken)
    runner.execute_model(batch(a=1))
    assert runner.sample_tokens(None) == "tokens"

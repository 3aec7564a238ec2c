"""The contract between vllm-ascend's runner and the debugger, by the runner's own call sites (programs/served.py)."""

import json

import pytest
from harness.dumps import entries, exported_steps
from harness.processes import external_server


def said(done):
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    return json.loads(line.removeprefix("SAID "))


def served_rows(data):
    return data["Module.layer.Linear.forward.0"]["input_args"][0]["shape"][0]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_each_batch_is_a_step_from_its_forward_to_its_sampling(task, dump_path, traced):
    traced("served.py", "requests", task=task, level="mix")
    assert exported_steps(dump_path) == [0, 1, 2], "dummy runs use no step number"
    for step, rows in enumerate((5, 2, 1)):
        data = entries(dump_path, step)
        assert served_rows(data) == rows
        assert "Functional.linear.1.forward" in data and "Tensor.argmax.0.forward" in data, "sampling belongs to it"
        assert not any(name.endswith(".forward.1") for name in data), "the warm-up left nothing"


def test_a_pooling_model_ends_its_step_after_the_forward(dump_path, traced):
    traced("served.py", "pooling", level="L0")
    assert [served_rows(entries(dump_path, step)) for step in exported_steps(dump_path)] == [3, 2]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_batch_that_raises_does_not_spoil_the_next(task, dump_path, traced):
    done = traced("served.py", "raising", task=task, level="mix")
    assert said(done) == "a token below 0", "the program's own error is what it sees"
    assert exported_steps(dump_path) == [0, 1, 2, 3]
    assert "Module.layer.Linear.forward.0" not in entries(dump_path, 1), "the batch that raised is a step of its own"
    for step in (2, 3):
        assert served_rows(entries(dump_path, step)) == 1
        assert "Module.layer.Linear.forward.1" not in entries(dump_path, step)
    assert "the forward pass of step 1 raised" in done.stdout


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_what_an_idle_rank_discards_uses_no_number(task, dump_path, traced):
    done = traced("served.py", "raising_then_idle", task=task, level="L0")
    assert said(done) == "a token below 0"
    steps = exported_steps(dump_path)
    assert served_rows(entries(dump_path, steps[-1])) == 1 and steps == list(range(len(steps)))


def test_microbatch_threads_number_their_own_calls_and_have_their_own_tokens(tmp_path, traced, short_directory, ask):
    """A pass for each thread, though both are in the model at once: its tokens, and its records."""
    socket = short_directory / "s.sock"
    with external_server(socket, tmp_path / "data", tmp_path / "server.log"):
        traced("served.py", "microbatches", level="L0", server=f"unix:{socket}", run="served")

        def spans(request):
            rows = ask("steps", "served", "--request", request, server=f"unix:{socket}")
            assert not any(row["counted"] for row in rows)
            return sorted((row["step"], row["positions"], row["rows"]) for row in rows)

        def tokens_in(request, position):
            """Ids that the pass gave to the embedding: they are positions here."""
            (record,) = ask(
                *("records", "served", "--request", request, "--token", str(position)),
                *("--name", "Module.embed.*"),
                server=f"unix:{socket}",
            )
            given = record["fields"]["input_args"][0]
            return given["shape"], given["min"], given["max"]

        assert spans("a") == [(0, "0-2", "0-2"), (0, "3-3", "0-0"), (1, "4-4", "0-0")]
        assert spans("b") == [(0, "0-1", "1-2"), (1, "2-2", "0-0")]
        assert tokens_in("a", 1) == ([3], 0, 2)
        assert tokens_in("a", 3) == tokens_in("b", 0) == ([3], 0, 3)
        assert tokens_in("a", 4) == ([1], 4, 4) and tokens_in("b", 2) == ([1], 2, 2)


def test_an_encoders_batch_is_a_step(dump_path, traced):
    traced("served.py", "encoder", level="L0")
    assert exported_steps(dump_path) == [0, 1, 2]
    for step, images in ((0, 2), (1, 1)):
        data = entries(dump_path, step)
        assert list(data) == ["Module.vision.Linear.forward.0"]
        assert data["Module.vision.Linear.forward.0"]["input_args"][0]["shape"] == [images, 8]
    assert served_rows(entries(dump_path, 2)) == 2


def test_request_id_keeps_the_rows_of_that_request(dump_path, traced):
    done = traced("served.py", "requests", level="L0", section={"request_id": "b"})
    assert exported_steps(dump_path) == [0, 1]
    assert [served_rows(entries(dump_path, step)) for step in (0, 1)] == [2, 1]
    assert "'b' is not among scheduled_tokens ['a']" in done.stdout


def test_which_positions_of_which_request_a_pass_held(tmp_path, traced, short_directory, ask):
    socket = short_directory / "s.sock"
    with external_server(socket, tmp_path / "data", tmp_path / "server.log"):
        traced("served.py", "requests", level="L0", server=f"unix:{socket}", run="served")

        def spans(*question):
            found = ask("steps", "served", *question, server=f"unix:{socket}")
            return [(row["step"], row["positions"], row["rows"]) for row in found]

        assert spans("--request", "a") == [(0, "0-2", "0-2"), (1, "3-3", "1-1"), (2, "4-4", "0-0")]
        assert spans("--request", "b") == [(0, "0-1", "3-4"), (1, "2-2", "0-0")]
        assert spans("--request", "a", "--token", "1") == [(0, "0-2", "0-2")]
        assert spans("--request", "b", "--token", "7") == []
        records = ask("records", "served", "--request", "a", "--token", "3", server=f"unix:{socket}")
        assert {record["step"] for record in records} == {1} and records

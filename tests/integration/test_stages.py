"""Stages of the chain that a call passes through beside the observer: what they change, and that records say so."""

import re

import pytest
from harness.dumps import embedded_data_directory, entries, rank_directory

MODULE, MUL, LINEAR = "Module.first.Linear.forward.0", "Torch.mul.0.forward", "Functional.linear.0.forward"


@pytest.fixture
def staged(traced, dump_path, ask):
    """staged(case) -> (output of the program, data of dump.json, names of the records that say they were touched)."""

    def call(case):
        done = traced("stages.py", "--case", case, level="mix")
        directory = embedded_data_directory(dump_path)
        (run,) = ask("runs", data_dir=directory)
        records = ask("records", run["run"], data_dir=directory)
        return done.stdout, entries(dump_path), {row["name"] for row in records if row["touched"]}

    return call


def output(text):
    return re.search("OUTPUT (.*)", text)[1]


def inputs(entry):
    return entry["input_args"][0]["Max"]


def results(entry):
    return entry["output"][0]["Max"]


def test_without_stages_no_record_is_touched(staged):
    text, data, touched = staged("none")
    assert output(text) == "[[1.0, 4.0]]"
    assert not touched
    assert inputs(data[MODULE]) == results(data[MODULE]) == 2.0


def test_a_stage_before_the_observer_doubles_the_input_that_is_recorded(staged):
    text, data, touched = staged("doubled")
    assert output(text) == "[[2.0, 8.0]]"
    assert inputs(data[MODULE]) == results(data[MODULE]) == 4.0
    assert touched == {MODULE, MODULE.replace("forward", "backward")}, "the module's backward is of the touched call"
    assert "Torch.mul.1.forward" not in data and not any("Tensor.__" in name for name in data), "nothing of the stage"


def test_a_stage_behind_the_observer_doubles_the_input_unseen(staged):
    text, data, touched = staged("doubled behind")
    assert output(text) == "[[2.0, 8.0]]"
    assert (inputs(data[MODULE]), results(data[MODULE])) == (2.0, 4.0)
    assert inputs(data[LINEAR]) == 4.0, "calls inside the module are recorded as they are made"
    assert MODULE in touched and LINEAR not in touched


def test_apis_pass_through_stages_too(staged):
    text, data, touched = staged("doubled apis")
    assert output(text) == "[[16.0, 64.0]]"
    assert {LINEAR, MUL} <= touched and MODULE not in touched
    assert (inputs(data[LINEAR]), inputs(data[MUL])) == (4.0, 16.0)


@pytest.mark.parametrize(("case", "name"), [("twice", MODULE), ("twice api", MUL)])
def test_a_call_that_is_run_again_is_one_record(staged, case, name):
    text, data, touched = staged(case)
    assert output(text) == "[[2.0, 8.0]]"
    assert name in touched
    assert list(data).count(name) == 1 and name.replace(".0", ".1") not in data
    assert results(data[name]) == {MODULE: 2.0, MUL: 4.0}[name], "what the first run gave"
    if name == MODULE:
        assert "Functional.linear.1.forward" in data, "what is called inside the second run is recorded"


def test_a_stage_answers_in_place_of_the_function(staged):
    text, data, _ = staged("answered")
    assert output(text) == "[[7.0, 14.0]]"
    assert f"CALL {MODULE} module forward 0 0 1 {{}}" in text
    assert MODULE not in data and LINEAR not in data


def test_a_stage_behind_the_observer_gives_the_output_that_is_recorded(staged):
    text, data, touched = staged("answered behind")
    assert output(text) == "[[7.0, 14.0]]"
    assert (inputs(data[MODULE]), results(data[MODULE])) == (2.0, 7.0)
    assert touched == {MODULE}
    assert LINEAR not in data


@pytest.mark.parametrize("case", ["careless", "broken"])
def test_a_mistake_in_a_stage_stays_out_of_the_run(staged, dump_path, case):
    text, data, touched = staged(case)
    assert output(text) == "[[1.0, 4.0]]"
    assert results(data[MODULE]) == 2.0 and MODULE in touched
    faults = (rank_directory(dump_path) / "dump_error_info.log").read_text()
    assert "a mistake in the stage" in faults and MODULE in faults


def test_what_the_function_raises_goes_through_the_stage(staged):
    text, _, touched = staged("raised")
    assert "SEEN RuntimeError" in text
    assert re.search("RAISED .*shape", text)
    assert MODULE in touched


def test_a_call_that_a_stage_kept_has_ended(staged):
    text, _, _ = staged("keeping")
    assert "KEPT the call has ended" in text

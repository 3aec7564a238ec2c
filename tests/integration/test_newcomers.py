"""The lines that somebody new to the tool sees, and when."""

import json
import os
import re
import sys

import numpy
import pytest
import torch
from harness.answers import rows
from harness.dumps import embedded_data_directory, entries, exported_steps, rank_directory
from harness.processes import run


def lines_of(done, level):
    return [line.split("] ", 1)[1] for line in done.stdout.splitlines() if f"[{level}]" in line]


@pytest.mark.timeout(120)
def test_a_step_says_one_line_and_that_at_its_end(traced):
    done = traced("newcomer.py", "plain", level="mix")
    first, *told = lines_of(done, "INFO")
    assert first.startswith("msprobe: debugger.start() is set successfully. ")
    assert [re.sub(r"/.*/", "", line).strip() for line in told] == ["dump.json is at step0.", "dump.json is at step1."]


@pytest.mark.timeout(120)
def test_nothing_is_said_above_the_log_level(traced):
    done = traced("newcomer.py", "plain", level="mix", env={"MSPROBE_LOG_LEVEL": "2"})
    assert done.stdout == "ENDED\n"


@pytest.mark.timeout(180)
def test_workers_of_a_loader_say_nothing(traced, dump_path):
    done = traced("newcomer.py", "workers", unknown_field=1, timeout=150)
    for context in ("fork", "spawn"):
        assert f"LOADED {context} [0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0]" in done.stdout
    assert "fork" not in "".join(lines_of(done, "INFO")), done.stdout
    (warning,) = lines_of(done, "WARNING")  # that of the program itself
    assert "unknown_field" in warning
    assert [name for name in entries(dump_path) if name.startswith("Torch.abs")]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("where", [b"scr\xffipt.py", b"fold\xffer/program.py"])
def test_a_program_whose_name_is_not_utf8_is_captured(tmp_path, dump_path, where):
    program = tmp_path / os.fsdecode(where)
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        "import torch; from msprobe.pytorch import PrecisionDebugger\n"
        f"debugger = PrecisionDebugger(dump_path={str(dump_path)!r}, task='statistics', level='L1')\n"
        "model = torch.nn.Linear(4, 4)\n"
        "debugger.start(model); model(torch.ones(1, 4)); debugger.stop(); debugger.step()\n"
    )
    run([sys.executable, program.name], cwd=program.parent)
    assert list(entries(dump_path)) == ["Functional.linear.0.forward"]


@pytest.mark.timeout(120)
def test_a_call_that_a_step_ends_in_takes_nothing_along(traced, dump_path):
    done = traced("late_calls.py", level="mix")
    assert lines_of(done, "WARNING") == []
    steps = exported_steps(dump_path)
    assert len(steps) == 60
    assert not list(dump_path.rglob("INCOMPLETE"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("case", "configuration", "words"),
    [
        ("compiled", {"level": "L0"}, ["compiled by torch.compile", "AclGraphDumper", '"capture": "all"']),
        ("bare", {"level": "L0"}, ["Linear has none", '"capture": "all"', "mix"]),
        ("uncalled", {"level": "L0"}, ["no forward pass of the model ran"]),
        ("plain", {"level": "L1", "section": {"list": ["conv2d"]}}, ["filters", "list ['conv2d']"]),
        ("plain", {"level": "L0", "section": {"scope": ["Module.a.B.forward.0"] * 2}}, ["filters", "scope"]),
    ],
)
def test_an_empty_step_is_said_once_with_the_reason(traced, dump_path, case, configuration, words):
    done = traced("newcomer.py", case, **configuration)
    (warning,) = lines_of(done, "WARNING")
    assert warning.startswith("step 0 has no record: ")
    assert all(word in warning for word in words), warning
    assert not [name for step in exported_steps(dump_path) for name in entries(dump_path, step)]


@pytest.mark.timeout(120)
def test_what_was_advised_for_an_empty_step_helps(traced, dump_path):
    done = traced("newcomer.py", "bare", level="L0", capture="all")
    assert lines_of(done, "WARNING") == []
    assert "Module.Linear.forward.0" in entries(dump_path)


@pytest.mark.timeout(120)
def test_a_wrong_configuration_ends_in_one_sentence(traced):
    done = traced("newcomer.py", "plain", check=False, level="L9")
    assert done.returncode == 1
    assert done.stderr.startswith("msprobe: level ") and "L9" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.timeout(120)
def test_two_passes_over_one_forward_are_both_kept(traced, dump_path, client):
    traced("newcomer.py", "penalty", level="mix")
    for step in (0, 1):
        data = entries(dump_path, step)
        for first, second in (
            ("Functional.linear.1.backward", "Functional.linear.1.backward.1"),
            ("Module.second.Linear.backward.0", "Module.second.Linear.backward.0.1"),
        ):
            assert second in data and list(data).index(first) < list(data).index(second)
            assert data[first]["input"][0]["Max"] == data[second]["input"][0]["Max"] == 1.0
        # Only the second pass has what the penalty adds below the sine.
        norms = [data[f"Functional.linear.0.backward{again}"]["input"][0]["Norm"] for again in ("", ".1")]
        assert norms[0] != norms[1]
        construct = json.loads((rank_directory(dump_path, step) / "construct.json").read_text())
        assert construct["Functional.linear.1.backward.1"] == "Module.second.Linear.backward.0.1"
    compared = run([client, "compare", dump_path, dump_path, "--all", "--format", "json"])
    pairs = {row["name"]: row["golden_name"] for row in rows(compared.stdout)}
    assert pairs["Functional.linear.1.backward.1.input.0"] == "Functional.linear.1.backward.1.input.0"
    assert pairs["Functional.linear.1.backward.input.0"] == "Functional.linear.1.backward.input.0"
    # An import understands the passes of an export.
    listed = run([client, "records", dump_path, "--step", "0", "--format", "json"])
    kinds = {row["name"]: (row["kind"], row["direction"]) for row in rows(listed.stdout)}
    assert kinds["Functional.linear.1.backward.1"] == ("api", "backward")
    assert kinds["Module.second.Linear.backward.0.1"] == ("module", "backward")


@pytest.mark.timeout(120)
def test_one_pass_is_named_as_ever(traced, dump_path):
    traced("newcomer.py", "plain", level="mix")
    assert not [name for name in entries(dump_path) if re.search(r"backward(\.\d+)?\.\d+$", name) and ".0.1" in name]
    assert "Functional.linear.1.backward" in entries(dump_path)


@pytest.mark.timeout(120)
def test_inside_vmap_a_record_says_why_it_has_no_numbers(traced, dump_path, client):
    traced("newcomer.py", "vmapped", level="L1")
    leaf = entries(dump_path)["Torch.sin.0.forward"]["input_args"][0]
    assert leaf["Max"] is None and "no_statistics" not in leaf  # mindstudio-probe has no such key
    store = embedded_data_directory(dump_path)
    listed = run([client, "--data_dir", store, "records", _run(client, store), "--step", "0"])
    (line,) = [line for line in listed.stdout.splitlines() if line.startswith("Torch.sin.0.forward.input.0")]
    assert "inside a transformation of torch.func" in line


def _run(client, store):
    (only,) = rows(run([client, "--data_dir", store, "--format", "json", "runs"]).stdout)
    return only["run"]


@pytest.mark.timeout(120)
def test_numpy_arrays_are_saved_with_tensors(traced, dump_path):
    traced("newcomer.py", "arrays", level="L0", task="tensor")
    record = entries(dump_path)["Module.scaled.WithArray.forward.0"]
    leaf = record["input_args"][1]
    assert list(leaf) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "data_name"]
    assert (leaf["type"], leaf["dtype"], leaf["shape"]) == ("numpy.ndarray", "float32", [3, 3])
    saved = torch.load(rank_directory(dump_path) / "dump_tensor_data" / leaf["data_name"])
    assert numpy.array_equal(saved.numpy(), numpy.arange(12, dtype=numpy.float32).reshape(3, 4)[:, 1:])
    empty = record["input_kwargs"]["words"]
    assert empty["shape"] == [0, 2] and empty["Max"] is None and empty["data_name"].endswith(".pt")

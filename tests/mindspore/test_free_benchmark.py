"""Task free_benchmark in the real MindSpore: planted calls stand in free_benchmark.csv, stable ones do not, and the
program does not notice."""

import csv
import json
import math
import pathlib

import pytest
from harness.dumps import embedded_data_directory
from harness.mindspore import PROGRAMS, entries

PERTURBED = PROGRAMS / "perturbed.py"
# Of mindstudio-probe 8.3.3, the last that has the task, over the same program in MindSpore 2.7.2.
RECORDED = pathlib.Path(__file__).parent / "recordings" / "free_benchmark_8_3_3.csv"


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_planted_calls_are_named_as_mindstudio_probe_names_them(run_program, tmp_path, ask):
    done = run_program(PERTURBED, tmp_path, "bit_noise")
    assert "same True" in done.output
    found, recorded = rows_of(tmp_path / "free_benchmark.csv"), rows_of(RECORDED)
    assert found[0].keys() == recorded[0].keys()
    assert len(found) == len(recorded) == 4
    for ours, theirs in zip(found, recorded, strict=True):
        assert float(ours.pop("max_rel")) == pytest.approx(float(theirs.pop("max_rel")), rel=5e-3)
        assert ours == theirs
    directory = embedded_data_directory(tmp_path)
    (run,) = ask("runs", data_dir=directory)
    records = [row for row in ask("records", run["run"], data_dir=directory) if row["name"].endswith(".forward")]
    assert records
    assert all(record["touched"] for record in records)


def test_gradients_are_computed_again_on_copies(run_program, tmp_path):
    done = run_program(PERTURBED, tmp_path, "change_value", "backward")
    assert "same True" in done.output
    assert "was not compared" not in done.output
    found = {(row["api_name"], row["stage"]): float(row["max_rel"]) for row in rows_of(tmp_path / "free_benchmark.csv")}
    first = {name: share for (name, stage), share in found.items() if stage == "backward"}
    # Of log's gradient, w/x with w from 1 to 3 and x from 0.5 to 2: x swapped, the last becomes four times as large.
    assert first["Mint.log.1"] == pytest.approx(3.0, rel=1e-3)
    assert first["Mint.exp.1"] == pytest.approx(math.exp(1.5) - 1, rel=1e-3)
    assert not [name for name in first if ".add." in name], "what comes in is the same everywhere"


def test_fix_gives_the_program_the_better_numbers(run_program, tmp_path):
    done = run_program(PERTURBED, tmp_path, "improve_precision", "forward", "fix")
    (got,) = (line for line in done.output.splitlines() if line.startswith("got "))
    norm, cosine, _ = json.loads(got.removeprefix("got "))
    assert (norm, cosine) == (pytest.approx(5002, rel=1e-3), pytest.approx(1, rel=1e-3)), "in 16 bits inf and nan"
    assert entries(tmp_path)["Functional.norm.0.forward"]["output"][0]["Max"] == norm
    assert not (tmp_path / "free_benchmark.csv").exists()


@pytest.fixture(scope="module")
def said(run_program, tmp_path_factory):
    """What perturbed_calls.py says of its cases, and what it logs."""
    output = run_program(PROGRAMS / "perturbed_calls.py", tmp_path_factory.mktemp("calls") / "out").output
    (line,) = (line for line in output.splitlines() if line.startswith("said "))
    return json.loads(line.removeprefix("said ")) | {"log": output}


def test_what_is_a_difference(said):
    assert float(said["large"][0]) > 3e-4, "bad numbers come first, and more than a piece of good ones behind them"
    assert said["small"], "where all is small, small differences count"
    assert said["each input"]
    assert [said["nan"], said["inf"], said["sign"]] == [["nan"], ["inf"], ["symbol_flipping"]]
    assert said["swapped"] == ["3.0"]
    assert said["any change"]
    assert said["better"] == ["inf"], "300 and 900 squared are more than 16 bits hold"
    assert said["pair"] == ["1.0"]
    assert [said[name] for name in ("both nan", "no change", "complex", "no numbers")] == [[]] * 4


def test_a_call_is_made_once_where_twice_would_show(said):
    assert said["once"] == [2.0, 3.0]
    drawing = ["Functional.dropout", "Primitive.drop.Dropout", "Mint.randn_like", "Functional.normal"]
    assert said["run"] == [*drawing, "Jit.f", "mine.f", "again", "again"]


def test_fix_keeps_the_gradient_of_the_first_result(said):
    is_better, was_better, has_its_gradient = said["fix"]
    assert is_better and not was_better
    assert has_its_gradient


def test_errors_stay_where_they_belong(said):
    assert said["late error"] == [True, [2.0, 2.0, 2.0]]
    assert "Mint.once.0.forward was not compared: " in said["log"]
    assert said["program's error"] in ("RuntimeError", "ValueError")
    assert said["program's late error"] in ("RuntimeError", "ValueError")
    assert "Mint.late.0.forward was not compared" not in said["log"], "the error is the program's"


def test_numbers_change_as_in_pytorch(said):
    torch = pytest.importorskip("torch")
    from msprobe.pytorch.free_benchmark.perturbing import CHANGES

    for case, changed in said["bits"].items():
        mode, dtype = case.split()
        values = torch.tensor([3.0, -1.5, 1e-5, 0.0, 250.0, 7.0]).to(getattr(torch, dtype))
        assert CHANGES[mode](values).float().tolist() == changed, case


def test_what_compares_with_the_cpu_is_refused(said):
    assert said["to_cpu"] == "pert_mode is 'to_cpu'; it is for PyTorch, leave it out for MindSpore"
    assert said["preheat"] == "if_preheat is True; it is for PyTorch, leave it out for MindSpore"

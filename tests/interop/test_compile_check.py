"""PrecisionChecker beside that of mindstudio-probe: its csv, and where the verdicts are other ones."""

import csv
import json
import pathlib
import sys

import pytest
from harness.nightly import mostly_nightly
from harness.processes import run_with

SCRIPT = pathlib.Path(__file__).with_name("compile_checks.py")


class Checked:
    def __init__(self, python, directory):
        directory.mkdir()
        run_with(python, SCRIPT, directory)
        self.directory = directory
        self.said = json.loads((directory / "said.json").read_text())

    def lines(self, name):
        with (self.directory / f"{name}.csv").open(newline="") as file:
            return list(csv.reader(file))

    def rows(self, name):
        """(module, check, index) -> the row."""
        header, *rows = self.lines(name)
        return {tuple(row[:3]): dict(zip(header, row, strict=True)) for row in rows}


@pytest.fixture(scope="module")
def sides(oracle_python, tmp_path_factory):
    root = tmp_path_factory.mktemp("compile_check")
    return [Checked(python, root / name) for python, name in ((sys.executable, "ours"), (oracle_python, "real"))]


@pytest.mark.parametrize("name", mostly_nightly(["single", "both", "wrong"], "wrong"))
def test_the_csv_has_its_columns_rows_and_verdicts(sides, name):
    ours, real = sides
    assert ours.lines(name)[0] == real.lines(name)[0]
    assert ours.lines(name)[1] == real.lines(name)[1], "the loss"
    found, expected = ours.rows(name), real.rows(name)
    assert expected.keys() <= found.keys()
    for key, row in expected.items():
        for column in ("status", "shape"):
            assert found[key][column] == row[column], key
    checks = {check for _, check, _ in found.keys() - expected.keys()}
    assert checks <= {"fwd_input", "grad_output", "grad_parameter"}, "what we have beside its rows"


def test_numbers_are_those_of_the_csv(sides):
    ours, real = (side.rows("wrong") for side in sides)
    for key in (("0", "fwd_output", "0"), ("1", "fwd_output", "0")):
        for column in ("max_abs_diff", "mean_abs_diff", "max_rel_diff"):
            assert float(ours[key][column]) == pytest.approx(float(real[key][column]), rel=1e-5), key


def test_the_tolerance_is_that_of_the_dtype(sides):
    """A result that is 5e-4 too large: far beyond float32's digits, within the one tolerance that it has."""
    ours, real = (side.said["slightly wrong"]["all_pass"] for side in sides)
    assert (ours, real) == (False, True)


def test_a_compiled_module_stays_one_graph(sides):
    ours, real = sides
    assert ours.said["inside"]["graphs"] == 1, "both blocks have the same code"
    assert real.said["inside"]["graphs"] > 1, "its hooks break the graph, so that other kernels are compared"
    assert ours.rows("inside")["0.up", "note", "0"]["note"] == "SKIP_inside_compiled"


def test_cast_modules_are_compiled_and_cast(sides):
    ours, real = (side.said["cast"]["graphs"] for side in sides)
    assert (ours, real) == (1, 0), "it compares eager with eager"
    assert sides[0].said["cast"]["all_pass"]


def test_a_model_without_wrapped_modules_is_compiled_whole(sides):
    ours, real = (side.said["unwrapped"] for side in sides)
    assert ours == {"all_pass": False, "graphs": 1, "training": True}
    assert real == {"all_pass": True, "graphs": 0, "training": True}, "it compares eager with eager"


def test_dropout_drops_the_same_elements_in_both(sides):
    ours, real = (side.said["dropout"]["all_pass"] for side in sides)
    assert (ours, real) == (True, False)


def test_a_model_in_evaluation_mode_stays_in_it(sides):
    ours, real = (side.rows("evaluated")["LOSS", "loss", "0"]["shape"] for side in sides)
    plain = sides[0].rows("single")["LOSS", "loss", "0"]["shape"]
    assert ours == plain, "dropout of probability 0"
    assert real != plain, "it trains the copy that it compiles"
    assert sides[0].said["evaluated"]["all_pass"]

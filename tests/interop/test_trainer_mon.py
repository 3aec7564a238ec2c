"""TrainerMon and TrainerMonitorV2 beside mindstudio-probe's, on the same trainings: files equal to the last digit."""

import concurrent.futures
import csv
import json
import pathlib
import sys

import pytest
from harness.processes import run

PROGRAM = pathlib.Path(__file__).with_name("monitor_cases.py")
sys.path.insert(0, str(PROGRAM.parent))
import monitor_cases  # noqa: E402


@pytest.fixture(scope="module")
def trained(tmp_path_factory, oracle_python):
    root = tmp_path_factory.mktemp("monitors")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours = pool.submit(run, [sys.executable, PROGRAM, root / "ours"], timeout=300)
        real = pool.submit(run, [oracle_python, PROGRAM, root / "real"], timeout=300, PYTHONPATH=None)
        ours.result()
        real.result()
    return root


def files(directory, pattern):
    return {path.name: path.read_text() for path in sorted(directory.glob(pattern))}


@pytest.mark.parametrize("name", monitor_cases.CASES)
def test_csv_files_are_the_same(trained, name):
    ours, real = (files(trained / side / name, "*-rank0-*/*.csv") for side in ("ours", "real"))
    assert ours.keys() == real.keys() and real
    for file, text in real.items():
        assert ours[file] == text, file


@pytest.mark.parametrize("name", ["everything", "chosen"])
def test_the_rules_find_the_same_anomalies(trained, name):
    ours, real = (
        json.loads(text) for side in ("ours", "real") for text in files(trained / side / name, "a*/*/*").values()
    )
    assert ours.keys() == real.keys() and real
    for key in real:  # a message holds every digit of a sum, whose order is each tool's own
        assert {**ours[key], "message": ""} == {**real[key], "message": ""}


def test_the_second_version_writes_the_same_files_and_the_gradients_that_the_tool_loses(trained):
    ours, real = (files(trained / side / "second", "rank_0/*.csv") for side in ("ours", "real"))
    assert ours.keys() == real.keys() and real
    for file, text in real.items():
        found, wanted = list(csv.reader(ours[file].splitlines())), list(csv.reader(text.splitlines()))
        if file.startswith("weight_grad"):
            assert sum(row[3] == "unreduced" for row in found) == sum(row[3] == "reduced" for row in found)
            found = [row for row in found if row[3] != "unreduced"]
        assert found == wanted, file

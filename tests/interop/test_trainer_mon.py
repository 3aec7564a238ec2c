"""TrainerMon and TrainerMonitorV2 beside mindstudio-probe's, on the same trainings: files equal to the last digit."""

import concurrent.futures
import csv
import json
import pathlib
import sys

import pytest
from harness.processes import run, run_with

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


@pytest.mark.parametrize("name", [*monitor_cases.CASES, "cc_before", "cc_lines"])
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


def test_the_second_version_watches_communication_alike(trained):
    ours, real = (files(trained / side / "cc_second", "rank_0/cc_*.csv") for side in ("ours", "real"))
    assert ours == real and len(real) == 3


AFTER = """
import runpy, sys
from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step
if __name__ == "__main__":
    monitor, out = sys.argv[1:]
    csv2tensorboard_by_step(monitor, data_type_list=["actv", "exp_avg", "grad_reduced"], output_dirpath=out)
    sys.argv[1:] = ["-d", f"{monitor}/anomaly_detected", "-o", out, "-k", "5", "-s", "[1, 2]"]
    runpy.run_module("msprobe.core.monitor.anomaly_processor", run_name="__main__")
"""


@pytest.fixture(scope="module")
def after(trained, oracle_python, tmp_path_factory):
    """What either tool makes of the same monitor's files."""
    root = tmp_path_factory.mktemp("after")
    (root / "after.py").write_text(AFTER)
    for side, python in (("ours", sys.executable), ("real", oracle_python)):
        run_with(python, root / "after.py", trained / "real" / "everything", root / side)
    return root


def test_the_first_anomalies_are_the_same_byte_for_byte(after):
    ours, real = ((after / side / "anomaly_analyse.json").read_text() for side in ("ours", "real"))
    assert ours == real and len(json.loads(real)) == 5


def test_event_files_of_csv_files_are_the_same(after):
    def scalars(side):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = {}
        for directory in sorted((after / side).glob("rank*/*")):
            events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
            for tag in events.Tags()["scalars"]:
                place = f"{directory.parent.name}/{directory.name}/{tag}"
                found[place] = [(each.step, repr(each.value)) for each in events.Scalars(tag)]
        return found

    assert scalars("ours") == scalars("real") and len(scalars("real")) > 20


def test_what_is_wrong_with_a_monitors_files_is_said_in_one_line(tmp_path):
    from msprobe._common.errors import MsprobeError
    from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step

    with pytest.raises(MsprobeError, match="has no directory"):
        csv2tensorboard_by_step(tmp_path)
    with pytest.raises(MsprobeError, match=r"data_type_list is \['loss'\]; it is a list of actv, "):
        csv2tensorboard_by_step(tmp_path, data_type_list=["loss"])
    with pytest.raises(MsprobeError, match="time_start is 'noon'; it is written as in Dec03_21-34-40"):
        csv2tensorboard_by_step(tmp_path, time_start="noon")
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / "anomaly.json").write_text('{"a": {"step": 1}}')
    command = [sys.executable, "-m", "msprobe.core.monitor.anomaly_processor", "-d", tmp_path]
    done = run(command, check=False)
    assert done.returncode == 3 and "is no anomaly.json of TrainerMon" in done.stderr and done.stderr.count("\n") == 1
    assert "write [2, 3]" in run([*command, "-s", "2"], check=False).stderr

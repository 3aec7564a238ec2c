"""PtdbgDispatch: the aten operators of a block, checked with what they were given, in mindstudio-probe's tables."""

import csv
import pathlib

import numpy as np
import pytest
from harness.processes import PROGRAMS, run_program
from msprobe_client.compat.accuracy_tables import DETAILS_COLUMNS, RESULT_COLUMNS

PROGRAM = PROGRAMS / "dispatch_check.py"


def results(tmp_path, *words):
    done = run_program(PROGRAM, tmp_path / "out", *words, OMP_NUM_THREADS=1)
    folder = pathlib.Path(done.stdout.splitlines()[-1])
    assert folder.parent == tmp_path / "out" and folder.name.startswith("msprobe_t_rank0_")
    assert not (folder / "captured").exists()
    (result,) = folder.glob("accuracy_checking_result_*.csv")
    (details,) = folder.glob("accuracy_checking_details_*.csv")
    tables = []
    for path, columns in ((result, RESULT_COLUMNS), (details, DETAILS_COLUMNS)):
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
        assert header == list(columns)
        tables.append(rows)
    return folder, {row[0]: row[1] for row in tables[0]}, tables[1]


@pytest.mark.timeout(150)
def test_a_wrong_operator_is_found_and_its_tensors_are_kept(tmp_path):
    folder, status, details = results(tmp_path, "auto", "wrong")
    assert status["Aten.gelu.0"] != "pass" and status["Aten.addmm.0"] == "pass"
    assert any(name.startswith("Aten.gelu_backward") for name in status)  # of the backward pass
    assert "Aten.t.0" not in status and "Aten.detach.0" not in status
    assert any(row[0] == "Aten.gelu.0.forward.output.0" for row in details)
    kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*.npy")}
    assert {"cpu/gelu_1_output.0.npy", "npu/gelu_1_output.0.npy", "npu/gelu_1_input.0.npy"} <= kept
    assert not any("addmm" in path for path in kept)
    both = [np.load(folder / side / "gelu_1_output.0.npy", allow_pickle=False) for side in ("cpu", "npu")]
    assert 0 < np.abs(both[0] - both[1]).max() < 0.01


@pytest.mark.timeout(150)
def test_listed_operators_are_kept(tmp_path):
    folder, status, _ = results(tmp_path, "list")
    assert set(status.values()) <= {"pass", "SKIP"}
    assert {path.name.split("_")[0] for path in folder.rglob("*.npy")} == {"addmm"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dump_path": None}, "dump_path is None"),
        ({"dump_mode": "some"}, "OFF, all, list, auto"),
        ({"dump_mode": "list"}, "api_list is None"),
        ({"tag": "a/b"}, "tag is 'a/b'"),
        ({"process_num": 1000}, "process_num is 1000"),
    ],
)
def test_wrong_arguments_are_refused(arguments, said):
    from msprobe.pytorch import MsprobeError, PtdbgDispatch

    with pytest.raises(MsprobeError, match=said):
        PtdbgDispatch(**{"dump_path": "x", **arguments})

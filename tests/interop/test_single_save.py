"""SingleSave and SingleComparator beside mindstudio-probe's: the same files, and the same cells but for listed rows."""

import concurrent.futures
import json
import pathlib
import re
import sys

import numpy
import openpyxl
import pytest
from harness.processes import REPOSITORY, run, run_with

PROGRAM = pathlib.Path(__file__).with_name("single_saves.py")
# Of what is saved without a micro step, mindstudio-probe compares the last file that it finds (single-members).
ONLY_OURS = {"by_name.xlsx"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory, oracle_python):
    """Directories one, other and out of either tool, and what ours said of the comparison."""
    root = tmp_path_factory.mktemp("saved")

    def made(side, python):
        here = root / side
        here.mkdir()
        return run_with(python, PROGRAM, here).stderr

    with concurrent.futures.ThreadPoolExecutor() as pool:
        ours, _ = pool.map(made, ("ours", "real"), (sys.executable, oracle_python))
    return root, ours


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def rows(path):
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["Sheet1"]
    return list(book.active.iter_rows(values_only=True))


@pytest.mark.parametrize("program", ["one", "other"])
def test_saved_files_are_equal_byte_for_byte(saved, program):
    root, _ = saved
    found = files(root / "ours" / program)
    assert found == files(root / "real" / program)
    assert len(found) == 1 + 2 * (2 * 15 + 3) + 2


def test_workbooks_are_equal_cell_for_cell(saved):
    root, _ = saved
    names = {path.name for path in (root / "real" / "out").iterdir()}
    assert names == {path.name for path in (root / "ours" / "out").iterdir()}
    for name in sorted(names - ONLY_OURS):
        assert rows(root / "ours" / "out" / name) == rows(root / "real" / "out" / name), name
    assert len(rows(root / "ours" / "out" / "pair.xlsx")) == 1 + 2 * 2 * 2


def test_members_have_rows_of_their_own(saved):
    root, _ = saved
    ours = rows(root / "ours" / "out" / "by_name.xlsx")
    assert [cells[:4] for cells in ours[1:]] == [(step, 0, 0, key) for step in (0, 1) for key in ("first", "second")]
    assert all(30 < cells[6] < 100 for cells in ours[1:])
    assert len(rows(root / "real" / "out" / "by_name.xlsx")) < len(ours)


def test_what_is_compared_in_part_or_not_at_all_is_said(saved):
    _, said = saved
    assert "has the shape [2, 5]" in said and "a part is compared" in said
    assert "one_only: 1 of its tensors are on one side alone" in said
    assert "other_only: 1 of its tensors are on one side alone" in said


def arrays(*given):
    from msprobe.core import SingleComparator

    found = SingleComparator.compare_arrays(*(numpy.array(values, dtype) for values, dtype in given))
    return found.same_percentage, found.first_mismatch_index, found.max_abs_error, found.max_relative_error


def test_numbers_that_mindstudio_gets_wrong():
    nan, inf = numpy.nan, numpy.inf
    # The same NaN and the same infinity are no difference; on one side alone they are the largest there is.
    assert arrays(([nan, inf, 1], "f4"), ([nan, inf, 1], "f4")) == (100, None, 0, 0)
    same, first, absolute, relative = arrays(([1, nan], "f4"), ([1, 2], "f4"))
    assert (same, first) == (50, 1) and numpy.isnan(absolute) and numpy.isnan(relative)
    assert arrays(([inf, 4], "f4"), ([2, 4], "f4"))[:3] == (50, 0, inf)
    # Neither bool nor unsigned values wrap or raise; half precision has the digits of the difference.
    assert arrays(([True, False], "?"), ([True, True], "?")) == (50, 1, 1, 1)
    assert arrays(([250], "u1"), ([251], "u1"))[2] == 1
    assert arrays(([60000], "f2"), ([-60000], "f2"))[2] == 120000
    # Integers that no double tells apart differ, and the largest difference does not wrap.
    assert arrays(([2**64 - 1, 2**63], "u8"), ([2**64 - 2, 2**63], "u8"))[:3] == (50, 0, 1)
    assert arrays(([2**53 + 1], "i8"), ([2**53], "i8"))[:3] == (0, 0, 1)
    assert arrays(([-(2**63)], "i8"), ([2**63 - 1], "i8"))[2] == 2.0**64
    assert arrays(([2**64 - 1, 7], ">u8"), ([-1, 7], "i8"))[:3] == (50, 0, 2.0**64)
    assert arrays(([], "f4"), ([], "f4")) == (None, None, None, None)


def test_half_precision_is_measured_in_float32(tmp_path, monkeypatch, capsys):
    import torch
    from msprobe.core import SingleSave

    monkeypatch.setattr(SingleSave, "_instance", None)
    SingleSave(tmp_path).save({"half": torch.full((4096,), 3000.0, dtype=torch.float16), "empty": torch.ones(0)})
    numbers = json.loads((tmp_path / "data/half/step0/rank0/micro_step0/half.json").read_text())["data"]
    assert numbers["norm"] == pytest.approx(192000, rel=1e-5)
    (tmp_path / "data" / "lost").touch()
    SingleSave.save({"lost": torch.ones(2)})  # what cannot be written ends no training
    assert "ERROR" in capsys.readouterr().out
    assert json.loads((tmp_path / "data/empty/step0/rank0/micro_step0/empty.json").read_text())["data"]["max"] is None


def test_what_is_wrong_is_said_in_one_line(tmp_path, monkeypatch):
    from msprobe._common.errors import MsprobeError
    from msprobe.core import SingleComparator, SingleSave

    with pytest.raises(MsprobeError, match="has no directory data; it should be the dump_path of a SingleSave"):
        SingleComparator.compare(tmp_path, tmp_path, tmp_path / "out")
    with pytest.raises(MsprobeError, match="num_processes is 0; it is a number from 1 to 192"):
        SingleComparator.compare(tmp_path, tmp_path, tmp_path / "out", 0)
    monkeypatch.setattr(SingleSave, "_instance", None)
    with pytest.raises(MsprobeError, match=r"call SingleSave\(dump_path\) first"):
        SingleSave.save({})
    with pytest.raises(MsprobeError, match="fmk is 'tensorflow'; it is one of pytorch, mindspore"):
        SingleSave(tmp_path, "tensorflow")
    place = tmp_path / "dump" / "data" / "x" / "step0" / "rank0"
    place.mkdir(parents=True)
    (place / "x.npy").write_bytes(b"\x93NUMPY and no more")
    SingleComparator.compare(tmp_path / "dump", tmp_path / "dump", tmp_path / "out")
    assert len(rows(tmp_path / "out" / "x.xlsx")) == 1


def test_the_example_of_the_document(tmp_path):
    text = (REPOSITORY / "docs" / "analysis.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", text.partition("a program saves by itself")[2], re.M | re.S)
    first, then = program.split("\n\nSingleComparator")
    (tmp_path / "once.py").write_text(
        f"import shutil, torch\nfirst, second, hidden = torch.ones(3, 2, 2)\n{first}\n"
        f"shutil.copytree('saved', 'golden')\nSingleComparator{then}"
    )
    run([sys.executable, tmp_path / "once.py"], cwd=tmp_path)
    assert {path.name for path in (tmp_path / "differences").iterdir()} == {"hidden.xlsx", "states.xlsx"}
    assert rows(tmp_path / "differences" / "hidden.xlsx")[1][6:8] == (100, None)

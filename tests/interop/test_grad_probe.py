"""Task grad_probe beside mindstudio-probe 8.3.3, the last that had it: results_8_3 has what it wrote for the program
recordings/fixed_gradients.py.
"""

import json
import pathlib
import sys

import pytest
from harness.dumps import write_config
from harness.processes import run

HERE = pathlib.Path(__file__).parent
RECORDED = HERE / "results_8_3"


def probe(directory, level, *arguments):
    config = write_config(
        directory / f"{level}.json",
        directory / level,
        task="grad_probe",
        section={"grad_level": level, "bounds": [-0.25, 0, 0.5, 2]},
    )
    run([sys.executable, HERE / "recordings" / "fixed_gradients.py", config, *arguments], timeout=180)
    return directory / level / "rank0"


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return probe(tmp_path_factory.mktemp("golden"), "L2")


def same(path, recorded):
    assert path.read_bytes() == (RECORDED / recorded).read_bytes()


def test_distributions_and_signs_are_equal_byte_for_byte(golden):
    same(golden / "grad_summary_1.csv", "grad_summary_L2.csv")
    same(golden / "step1" / "1.weight.npy", "1.weight.npy")
    names = {path.stem for path in (golden / "step1").iterdir()}
    assert names == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_tables_of_the_other_levels_are_equal_byte_for_byte(tmp_path, level):
    same(probe(tmp_path, level) / "grad_summary_1.csv", f"grad_summary_{level}.csv")


def test_similarities_are_equal_byte_for_byte(golden, tmp_path):
    from msprobe import GradComparator

    other = probe(tmp_path, "L2", "--other")
    GradComparator.compare(str(other), str(golden), str(tmp_path / "out"))
    same(tmp_path / "out" / "similarities.csv", "similarities.csv")


def test_the_old_configuration_is_taken_as_it_was(tmp_path):
    """Every field of the old documents, with rank and step empty."""
    fields = {"task": "grad_probe", "dump_path": str(tmp_path / "dump"), "rank": [], "step": ["0-1"]}
    fields["grad_probe"] = {"grad_level": "L1", "param_list": ["0.bias"], "bounds": [-1, 0, 1]}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(fields))
    done = run([sys.executable, HERE / "recordings" / "fixed_gradients.py", config], timeout=180)
    assert "WARNING" not in done.stdout + done.stderr
    files = sorted(
        str(path.relative_to(tmp_path / "dump")) for path in (tmp_path / "dump").rglob("*.*") if path.is_file()
    )
    assert [name for name in files if not name.startswith(".msprobe")] == [
        "rank0/grad_summary_0.csv",
        "rank0/grad_summary_1.csv",
        "rank0/step0/0.bias.npy",
        "rank0/step1/0.bias.npy",
    ]

"""Training against inference (--consistent_check): byte for byte mindstudio-probe's tables."""

import json
import sys

import openpyxl
import pytest
import train_infer_pairs
from harness.processes import run

ORACLE = """
import json, sys
from msprobe.pytorch.compare.pt_compare import pt_compare
for pair in json.load(open(sys.argv[1])):
    pt_compare({"npu_path": pair["target"], "bench_path": pair["golden"]}, pair["out"], consistent_check=True,
               backend=pair["backend"], xlsx=pair["xlsx"])
"""
CASES = [
    (backend, task, form)
    for backend in ("fsdp", "megatron")
    for task in ("statistics", "tensor")
    for form in ("csv", "xlsx")
    if (backend, form) != ("megatron", "xlsx")
]


def compare(*arguments, check=True):
    command = "import sys; from msprobe_client.compat.compare_command import main; main(sys.argv[1:])"
    return run([sys.executable, "-c", command, *arguments], timeout=120, check=check)


def only(directory):
    (found,) = directory.iterdir()
    return found


@pytest.fixture(scope="module")
def results(oracle_python, tmp_path_factory):
    """(backend, task, form) -> (ours, theirs)."""
    root = tmp_path_factory.mktemp("train_infer")
    requests = []
    ours = {}
    for backend, task, form in CASES:
        at = root / f"{backend}_{task}_{form}"
        train, infer = getattr(train_infer_pairs, backend)(at, task)
        pair = {"target": str(train / "dump.json"), "golden": str(infer / "dump.json"), "out": str(at / "theirs")}
        requests.append({**pair, "backend": backend, "xlsx": form == "xlsx"})
        options = ["--consistent_check", "--backend", backend] + (["--xlsx"] if form == "xlsx" else [])
        compare("-tp", pair["target"], "-gp", pair["golden"], "-o", at / "ours", *options)
        ours[backend, task, form] = at
    (root / "pairs.json").write_text(json.dumps(requests))
    run([oracle_python, "-c", ORACLE, root / "pairs.json"], timeout=300, PYTHONPATH=None)
    return {case: (only(at / "ours"), only(at / "theirs")) for case, at in ours.items()}


@pytest.mark.parametrize(("backend", "task", "form"), CASES)
def test_tables_are_the_same(backend, task, form, results):
    ours, theirs = results[backend, task, form]
    if form == "csv":
        assert ours.read_text() == theirs.read_text()
        return
    sheets = [openpyxl.load_workbook(path).active for path in (ours, theirs)]
    assert [list(row) for row in sheets[0].values] == [list(row) for row in sheets[1].values]


def test_several_modules_stand_beside_the_one_they_are_of_the_engine(results):
    ours, _ = results["fsdp", "statistics", "csv"]
    rows = [line for line in ours.read_text().splitlines() if "qkv_proj" in line]
    assert len(rows) == 2 * 4  # two layers; input, weight, bias, output
    assert all(part in rows[1] for part in ("q_proj", "k_proj", "v_proj", "weight", "[4, 8];[4, 8];[4, 8]"))


def test_rows_whose_orders_contradict_each_other_are_in_the_training_sides(tmp_path):
    """mindstudio-probe ends with a traceback there."""
    train, infer = train_infer_pairs.fsdp(tmp_path, "statistics")
    dump = json.loads((infer / "dump.json").read_text())
    dump["data"] = dict(reversed(dump["data"].items()))
    (infer / "dump.json").write_text(json.dumps(dump))
    compare("-tp", train, "-gp", infer, "-o", tmp_path / "out", "--consistent_check", "--backend", "fsdp")
    names = [line.split(",")[0] for line in only(tmp_path / "out").read_text().splitlines()[1:]]
    places = [
        next(i for i, name in enumerate(names) if part in name) for part in ("layers.0.", "layers.1.", "model.norm")
    ]
    assert places == sorted(places)


def test_checksums_are_refused_in_one_line(tmp_path):
    train, infer = train_infer_pairs.fsdp(tmp_path, "statistics")
    for side in (train, infer):
        file = side / "dump.json"
        file.write_text(file.read_text().replace('"Norm": ', '"md5": "0badc0de", "Norm": '))
    options = ["--consistent_check", "--backend", "fsdp"]
    done = compare("-tp", train, "-gp", infer, "-o", tmp_path / "out", *options, check=False)
    assert done.returncode == 3
    assert "checksums (md5): training and inference are compared by statistics or tensors" in done.stderr
    assert done.stderr.count("\n") == 1

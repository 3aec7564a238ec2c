"""mindstudio-probe's other commands and files, held to its own on the same input."""

import csv
import itertools
import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy
import openpyxl
import pytest
from harness.processes import run
from test_compare import binary, compare, entry, leaf, only, scalar, tensor_pair, wild_pair, write_side  # noqa: F401

# All requests to mindstudio-probe in one process: its imports alone take seconds.
ORACLE = """
import json, sys
from msprobe.core.compare.merge_result.merge_result import merge_result
from msprobe.pytorch.compare.pt_compare import pt_compare
if __name__ == "__main__":
    asked = json.load(open(sys.argv[1]))
    for pair in asked["xlsx"]:
        pt_compare({"npu_path": pair["target"], "bench_path": pair["golden"]}, pair["out"], xlsx=True)
    for each in asked["merge"]:
        merge_result(each["in"], each["out"], each["config"])
"""
FIRST_LINE = pathlib.Path(__file__).with_name("results_1_0")


def msprobe(*arguments, binary):  # noqa: F811
    program = "from msprobe_client.compat.legacy import main; main()"
    return run([sys.executable, "-c", program, *arguments], MSPROBE_SERVER_BINARY=binary)


def oracle(python, *arguments):
    run([pathlib.Path(python).parent / "msprobe", *arguments], PYTHONPATH=None, OMP_NUM_THREADS=1, timeout=120)


def sheet_of(path):
    book = openpyxl.load_workbook(path)
    return book[book.sheetnames[0]]


def found(directory, pattern):
    (path,) = directory.glob(pattern)
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, reference):
    """name -> (target dump.json, golden dump.json)"""
    root = tmp_path_factory.mktemp("old_commands")
    made = {}
    for name, pair in (("generated", wild_pair()), ("contents", tensor_pair(root / "contents" / "files"))):
        for side, data in zip(("target", "golden"), pair, strict=True):
            directory = root / name / side / "rank0"
            write_side(directory, data, "tensor" if name == "contents" else "statistics")
            tensors = root / name / "files" / side / "dump_tensor_data"
            if tensors.is_dir():
                tensors.rename(directory / "dump_tensor_data")
        made[name] = tuple(root / name / side / "rank0" / "dump.json" for side in ("target", "golden"))
    for mode in ("statistics", "md5", "tensor"):
        sides = (reference / "compare" / f"{mode}_{side}" / "step0/proc1/dump.json" for side in ("perturb", "golden"))
        made[f"recorded_{mode}"] = tuple(sides)
    return made


XLSX = ("generated", "contents", "recorded_statistics", "recorded_md5", "recorded_tensor")


@pytest.fixture(scope="module")
def results(pairs, oracle_python, binary, tmp_path_factory):  # noqa: F811
    """Workbooks of either tool: name -> (ours, theirs); and the merged ones."""
    root = tmp_path_factory.mktemp("results")
    for name in XLSX:
        compare(binary, *pairs[name], root / "ours" / name, "--xlsx")
    ranks = root / "ranks"
    ranks.mkdir()
    for rank, name in ((0, "generated"), (2, "recorded_statistics"), (10, "generated")):
        workbook = found(root / "ours" / name, "*.xlsx")
        (ranks / f"compare_result_rank{rank}_20260101000000.xlsx").write_bytes(workbook.read_bytes())
    configs = {"all": [], "some": ["NormRelativeErr", "Requires_grad Consistent"]}
    for name, metrics in configs.items():
        apis = ["Functional.odd", "Torch.kind.1.forward", "Functional.linear"]
        (root / f"{name}.yaml").write_text(json.dumps({"api": apis, "compare_index": metrics}))
    asked = {
        "xlsx": [
            {"target": str(a), "golden": str(b), "out": str(root / "theirs" / name)}
            for name, (a, b) in pairs.items()
            if name in XLSX
        ],
        "merge": [
            {"in": str(ranks), "out": str(root / "theirs" / f"merged_{name}"), "config": str(root / f"{name}.yaml")}
            for name in configs
        ],
    }
    (root / "asked.json").write_text(json.dumps(asked))
    script = root / "oracle.py"
    script.write_text(ORACLE)
    run([oracle_python, script, root / "asked.json"], PYTHONPATH=None, OMP_NUM_THREADS=1, timeout=300)
    for name in configs:
        msprobe(
            *("merge_result", "-i", ranks, "-o", root / "ours" / f"merged_{name}", "-config", root / f"{name}.yaml"),
            binary=binary,
        )
    names = (*XLSX, *(f"merged_{name}" for name in configs))
    return {name: tuple(found(root / side / name, "*.xlsx") for side in ("ours", "theirs")) for name in names}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", XLSX)
def test_workbooks_are_the_same_cell_for_cell(name, results):
    ours, theirs = map(sheet_of, results[name])
    assert ours.title == theirs.title
    header = [cell.value for cell in theirs[1]]
    assert ours.dimensions == theirs.dimensions
    for a, b in zip(ours.iter_rows(), theirs.iter_rows(), strict=True):
        for column, x, y in zip(header, a, b, strict=True):
            assert same(column, x.value, y.value), (a[0].value, column, x.value, y.value)
            assert type(x.value) is type(y.value) or isinstance(y.value, int | float)
            assert (x.fill.fill_type, x.fill.fgColor.rgb) == (y.fill.fill_type, y.fill.fgColor.rgb)


def same(column, ours, theirs):
    """EucDist's last digits are those of a BLAS (docs/compatibility.md, "euclidean-distance")."""
    if ours == theirs:
        return True
    return column == "EucDist" and isinstance(ours, float) and math.isclose(ours, theirs, rel_tol=1e-13)


def test_results_carry_the_same_name(results):
    for name in XLSX:
        ours, theirs = results[name]
        assert [part.rstrip("0123456789") for part in (ours.stem, theirs.stem)] == ["compare_result_"] * 2
        assert len(ours.name) == len(theirs.name)


@pytest.mark.parametrize("name", ["merged_all", "merged_some"])
def test_merged_results_are_the_same(name, results):
    ours, theirs = (openpyxl.load_workbook(path) for path in results[name])
    assert ours.sheetnames == theirs.sheetnames
    for sheet in theirs.sheetnames:
        expected = list(theirs[sheet].iter_rows(values_only=True))
        assert len(expected) > 50
        assert list(ours[sheet].iter_rows(values_only=True)) == expected


def test_the_compatible_workbook_of_the_client_is_coloured_by_result(pairs, binary, tmp_path):  # noqa: F811
    command = "from msprobe_client.commands import main; main()"
    sides = map(str, pairs["recorded_statistics"])
    arguments = ["compare", *sides, "--compatible", "--format", "xlsx", "-o", tmp_path]
    ended = subprocess.run(
        [sys.executable, "-c", command, *map(str, arguments)], env=environment(binary), capture_output=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    sheet = sheet_of(only_xlsx(tmp_path))
    result = [cell.value for cell in sheet[1]].index("Result")
    colours = {(row[result].value, row[0].fill.fgColor.rgb) for row in sheet.iter_rows(min_row=2)}
    assert colours == {("pass", "00000000"), ("warning", "FFFFFF00")}


def environment(binary):  # noqa: F811
    import os

    return {**os.environ, "MSPROBE_SERVER_BINARY": str(binary)}


def only_xlsx(directory):
    return found(directory, "*.xlsx")


def test_the_first_line_takes_a_mapping_of_rows(pairs, binary, tmp_path):  # noqa: F811
    """As 8.3.3 does; -hl colours rows there, which are coloured here anyway."""
    target, golden = pairs["recorded_statistics"]
    rows = [f"{name}.output.0" for name in json.loads(target.read_text())["data"] if name.startswith("Functional.")]
    first, second = rows[:2]
    asked = tmp_path / "compare.json"
    asked.write_text(json.dumps({"npu_path": str(target), "bench_path": str(golden), "stack_path": ""}))
    (tmp_path / "rows.yaml").write_text(f"{first}: {second}\n")
    command = ["-f", "pytorch", "compare", "-i", asked, "-o", tmp_path / "out", "-dm", tmp_path / "rows.yaml", "-hl"]
    msprobe(*command, binary=binary)
    sheet = sheet_of(only_xlsx(tmp_path / "out"))
    partners = {row[0]: row[1] for row in sheet.iter_rows(min_row=2, values_only=True)}
    assert partners[first] == second


# Tables of mindstudio-probe 1.0.4, recorded: it needs libraries of its time. Rows of docs/compatibility.md.
@pytest.mark.parametrize("name", ["generated", "recorded_statistics", "recorded_md5", "recorded_tensor"])
def test_tables_of_the_first_line(name, pairs, binary, tmp_path):  # noqa: F811
    with (FIRST_LINE / f"{name}.csv").open(newline="") as file:
        expected = {row["NPU Name"]: row for row in csv.DictReader(file)}
    target, golden = pairs[name]
    asked = tmp_path / "compare.json"
    asked.write_text(json.dumps({"npu_path": str(target), "bench_path": str(golden), "stack_path": ""}))
    msprobe("-f", "pytorch", "compare", "-i", asked, "-o", tmp_path / "out", "-s", binary=binary)
    sheet = sheet_of(only_xlsx(tmp_path / "out"))
    header = [cell.value for cell in sheet[1]]
    assert [column for column in header if column != "NPU_Stack_Info"] == [
        column for column in next(iter(expected.values())) if column != "Colour"
    ]
    compared = 0
    differences = []
    for cells in sheet.iter_rows(min_row=2):
        row = {column: cell.value for column, cell in zip(header, cells, strict=True)}
        old = expected.get(row["NPU Name"])
        if old is None:
            assert first_line_lacks(row["NPU Name"]), row["NPU Name"]
            continue
        if old["Bench Name"] == "N/A" and row["Bench Name"] != "N/A":
            continue  # "first-line-pairs"
        if row["NPU Name"].startswith(FIRST_LINE_WORDS):
            continue
        compared += 1
        for column in header:
            if column == "NPU_Stack_Info":
                continue
            ours = "" if row[column] is None else row[column]
            if not old_cell(column, ours, old[column], old):
                differences.append((row["NPU Name"], column, ours, old[column]))
        if not row["NPU Name"].startswith(FIRST_LINE_COLOURS):
            colour = {"FFFF0000": "red", "FFFFFF00": "yellow"}.get(cells[0].fill.fgColor.rgb, "")
            if colour != old["Colour"]:
                differences.append((row["NPU Name"], "Colour", colour, old["Colour"]))
    assert not differences, "\n".join(map(str, differences[:20]))
    assert compared > 0.7 * len(expected)
    advice = found(tmp_path / "out", "advisor_*.txt").read_text().splitlines()
    assert [line.partition(": ")[0] for line in advice] == ["Line", "Suspect Nodes", "Expert Advice"]


def first_line_lacks(name):
    """ "first-line-rows": parameters, and outputs that are mappings, which it names otherwise."""
    return ".parameters" in name or ".output.0." in name or name.startswith("Torch.kind.25.")


# "first-line-words": it takes the texts "nan" and "inf" for numbers.
FIRST_LINE_WORDS = ("Torch.kind.10.", "Torch.kind.11.")
# "first-line-groups": it takes an operation without inputs for one with an input, and those behind it for others.
FIRST_LINE_COLOURS = (
    "Tensor.mean.1.backward.output.0",
    "Tensor.add_.10.forward.input.0",
    "Tensor.add_.10.forward.output.0",
)


def old_cell(column, ours, old, row):
    if str(ours) == old:
        return True
    if isinstance(ours, int | float) and not isinstance(ours, bool):
        try:
            # "first-line-zeros": it adds eps to zeros before it measures.
            return math.isclose(float(old), ours, rel_tol=1e-5)
        except ValueError:
            return False
    if column in ("One Thousandth Err Ratio", "Five Thousandths Err Ratio", "Err_message"):
        return row["Err_message"] == "This tensor is scalar."  # "first-line-scalars"
    return old in ("None", "nan\t") and ours in ("None", "N/A", "", "Nan")  # "first-line-nothing"


def overflowing(root):
    """Two ranks, of which one makes a NaN; then one whose first is made after a collective."""
    nan, inf = math.nan, math.inf
    module = "Module.net.Net.forward.0"
    for rank in (0, 1):
        value = nan if rank else 1.0
        data = {
            "Torch.add.0.forward": entry([leaf()], [leaf()]),
            "Torch.mul.0.forward": entry(
                [leaf(), scalar(3.0)], [leaf(stats=(value, value, value, value))], {"out": None}
            ),
            "Torch.sub.0.forward": entry([leaf(stats=(value, 0, 0, 0))], [leaf(stats=(inf if rank else 2, 0, 0, 0))]),
            module: entry([leaf()], [leaf(stats=(value, 0.0, 0.0, 0.0))]),
        }
        directory = root / f"rank{rank}"
        write_side(directory, data, "statistics")
        parents = {**dict.fromkeys(data, module), module: None}
        (directory / "construct.json").write_text(json.dumps(parents))
    return root


def test_overflow_check_writes_the_same_file(oracle_python, binary, tmp_path):  # noqa: F811
    step = overflowing(tmp_path / "step0")
    oracle(oracle_python, "overflow_check", "-i", step, "-o", tmp_path / "theirs")
    ended = msprobe("overflow_check", "-i", step, "-o", tmp_path / "ours", binary=binary)
    ours, theirs = (found(tmp_path / side, "anomaly_analyze_*.json") for side in ("ours", "theirs"))
    assert ours.read_text() == theirs.read_text()
    assert list(json.loads(ours.read_text())) == ["rank_1"]
    assert str(ours) in ended.stdout


def test_overflow_check_of_a_clean_step_writes_nothing(reference, binary, tmp_path):  # noqa: F811
    step = reference / "compare" / "statistics_golden" / "step0"
    ended = msprobe("overflow_check", "-i", step, "-o", tmp_path / "out", binary=binary)
    assert not (tmp_path / "out").exists() and "No operation" in ended.stdout


def test_parts_of_a_mixed_dump_are_compared_step_by_step(pairs, oracle_python, binary, tmp_path):  # noqa: F811
    """As MindSpore leaves them where a part of the program is compiled."""
    sides = []
    for side, dump in zip(("target", "golden"), pairs["generated"], strict=True):
        sides.append(tmp_path / side)
        for step in ("step0", "step2"):
            shutil.copytree(dump.parent, tmp_path / side / "pynative" / step / "rank0")
    options = ["-tp", sides[0], "-gp", sides[1]]
    oracle(oracle_python, "compare", *options, "-o", tmp_path / "theirs")
    for side in sides:
        kernels = side / "graph" / "step0" / "rank0"
        kernels.mkdir(parents=True)
        (kernels / "MatMul.0.npy").touch()
    done = msprobe("compare", *options, "-o", tmp_path / "ours", binary=binary)
    assert done.stderr.count("kernels that MindSpore dumps by itself are not compared") == 1
    for step in ("step0", "step2"):
        ours, theirs = (found(tmp_path / side / "pynative" / step, "*.csv") for side in ("ours", "theirs"))
        assert ours.read_text() == theirs.read_text()
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == ["pynative"]


def test_first_differences_are_the_same(pairs, oracle_python, binary, tmp_path):  # noqa: F811
    target, golden = (path.parent.parent for path in pairs["generated"])
    oracle(oracle_python, "compare", "-tp", target, "-gp", golden, "-o", tmp_path / "theirs", "-da")
    msprobe("compare", "-tp", target, "-gp", golden, "-o", tmp_path / "ours", "-da", binary=binary)
    for pattern in ("diff_analyze_*.json", "compare_result_rank0_*.json"):
        ours, theirs = (json.loads(found(tmp_path / side, pattern).read_text()) for side in ("ours", "theirs"))
        assert list(ours) == list(theirs)
        for name in theirs:
            assert comparable(ours[name]) == comparable(theirs[name])


def exchanging(root, wrong):
    """Two ranks that send each other a tensor in one call; on one side rank 1 has computed a wrong value before."""
    for rank in (0, 1):
        values = (40.0, -40.0, 4.0, 40.0) if wrong and rank == 1 else (1.5, -2.25, 0.125, 3.0)
        received = (40.0, -40.0, 4.0, 40.0) if wrong and rank == 0 else (1.5, -2.25, 0.125, 3.0)
        peers = [
            {
                "class_type": "torch.distributed.P2POp",
                "tensor": leaf(stats=stats),
                "op": op,
                "peer": 1 - rank,
                "tag": 0,
                "group_id": "9",
            }
            for op, stats in (("isend", values), ("irecv", (0.0, 0.0, 0.0, 0.0)))
        ]
        data = {
            "Torch.mul.0.forward": entry([leaf()], [leaf(stats=values)]),
            "Distributed.batch_isend_irecv.0.forward": entry([peers], [leaf(stats=received)]),
            "Torch.add.0.forward": entry([leaf(stats=received)], [leaf(stats=received)]),
        }
        write_side(root / f"rank{rank}", data, "statistics")
    return root


def test_peers_of_sends_and_receives_are_told(oracle_python, binary, tmp_path):  # noqa: F811
    target, golden = exchanging(tmp_path / "target", True), exchanging(tmp_path / "golden", False)
    oracle(oracle_python, "compare", "-tp", target, "-gp", golden, "-o", tmp_path / "theirs", "-da")
    msprobe("compare", "-tp", target, "-gp", golden, "-o", tmp_path / "ours", "-da", binary=binary)
    for pattern in ("compare_result_rank0_*.json", "compare_result_rank1_*.json", "diff_analyze_*.json"):
        ours, theirs = (json.loads(found(tmp_path / side, pattern).read_text()) for side in ("ours", "theirs"))
        assert list(ours) == list(theirs)
        assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    tables = json.loads(found(tmp_path / "ours", "compare_result_rank1_*.json").read_text())
    sent, taken, answer = tables["Distributed.batch_isend_irecv.0.forward"]["op_items"]
    assert (sent["NPU P2POp op"], sent["NPU P2POp peer"], sent["Bench P2POp peer"]) == ("isend", 0, 0)
    assert (taken["NPU P2POp op"], answer["NPU P2POp op"], answer["NPU P2POp peer"]) == ("irecv", "None", "None")


def calibrated_pair(root):
    """Contents that differ, until each side is multiplied by its matrices of --config."""
    torch = pytest.importorskip("torch")
    draw = torch.Generator().manual_seed(3)
    matrix = torch.randn(4, 4, generator=draw)
    value = torch.randn(3, 4, generator=draw)
    root.mkdir()
    torch.save(matrix, root / "matrix.pt")
    numpy.save(root / "left.npy", numpy.diag([2.0, 1.0, 0.5]).astype(numpy.float32))
    sides = {
        "target": {"input.0": value, "output.0": value @ torch.linalg.inv(matrix), "output.1": value.bfloat16()},
        "golden": {"input.0": value + 0.5, "output.0": value, "output.1": value.bfloat16()},
    }
    for side, tensors in sides.items():
        name = "Torch.matmul.0.forward"
        leaves = {part: leaf(f"{x.dtype}", x.shape, data_name=f"{name}.{part}.pt") for part, x in tensors.items()}
        data = {name: entry([leaves["input.0"]], [leaves["output.0"], leaves["output.1"]])}
        write_side(root / side / "step0" / "rank0", data, "tensor")
        (root / side / "step0" / "rank0" / "dump_tensor_data").mkdir()
        for part, x in tensors.items():
            torch.save(x, root / side / "step0" / "rank0" / "dump_tensor_data" / f"{name}.{part}.pt")
    maps = {
        "right_matmul": {"target_tensor_map": {str(root / "matrix.pt"): ["Torch.matmul.0.forward.output.0.pt"]}},
        "left_right_matmul": {
            "left_golden_tensor_map": {str(root / "left.npy"): ["Torch.matmul.0.forward.output.1.pt"]},
            "right_golden_tensor_map": {str(root / "matrix.pt"): ["Torch.matmul.0.forward.output.1.pt"]},
        },
    }
    (root / "config.yaml").write_text(json.dumps(maps))
    return maps


def test_tensors_are_multiplied_before_they_are_compared(oracle_python, binary, tmp_path):  # noqa: F811
    calibrated_pair(tmp_path / "pair")
    target, golden = (tmp_path / "pair" / side / "step0" for side in ("target", "golden"))
    config = tmp_path / "pair" / "config.yaml"
    arguments = ["compare", "-tp", target, "-gp", golden, "--config", config]
    oracle(oracle_python, *arguments, "-o", tmp_path / "theirs")
    msprobe(*arguments, "-o", tmp_path / "ours", binary=binary)
    msprobe(*arguments[:-2], "-o", tmp_path / "plain", binary=binary)
    ours, theirs, plain = (
        list(csv.DictReader(only(tmp_path / side).open(newline=""))) for side in ("ours", "theirs", "plain")
    )
    for row, other in zip(ours, theirs, strict=True):
        for column in other:
            exact = column not in ("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr")
            assert row[column] == other[column] if exact else close(row[column], other[column]), column
    assert [row["Cosine"] for row in ours] != [row["Cosine"] for row in plain]
    assert float(ours[1]["MaxAbsErr"]) < 1e-5 < float(plain[1]["MaxAbsErr"])
    assert len(list((target / "rank0" / "dump_tensor_data").iterdir())) == 3, "the dump stays as it is"


def close(ours, theirs):
    """The products are those of two libraries."""
    return ours == theirs or math.isclose(float(ours), float(theirs), rel_tol=1e-3, abs_tol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"middle_matmul": {}}, "middle_matmul is not known"),
        ({"right_matmul": {"target": {}}}, "right_matmul has target; it can have target_tensor_map"),
        ({"right_matmul": {"target_tensor_map": {"/nowhere.pt": []}}}, "/nowhere.pt does not exist"),
        ({"right_matmul": {"target_tensor_map": {"MATRIX": "x"}}}, "not a list of file names"),
        ({"right_matmul": {"target_tensor_map": {"MATRIX": ["other.pt"]}}}, "no tensor other.pt"),
        ({"left_matmul": {"target_tensor_map": {"MATRIX": ["Torch.matmul.0.forward.output.0.pt"]}}}, "from the left"),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(binary, tmp_path, change, said):  # noqa: F811
    calibrated_pair(tmp_path / "pair")
    config = tmp_path / "pair" / "config.yaml"
    config.write_text(json.dumps(change).replace("MATRIX", str(tmp_path / "pair" / "matrix.pt")))
    target, golden = (tmp_path / "pair" / side / "step0" for side in ("target", "golden"))
    program = "from msprobe_client.compat.legacy import main; main()"
    arguments = ["compare", "-tp", target, "-gp", golden, "--config", config, "-o", tmp_path / "out"]
    ended = run([sys.executable, "-c", program, *arguments], MSPROBE_SERVER_BINARY=binary, check=False)
    assert ended.returncode == 3, ended.stderr
    assert said in ended.stderr and len(ended.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("out/*"))


def comparable(value):
    """Without the peers of the golden side, which the tool takes from the row at the same place, of whatever name."""

    def cleaned(value):
        if isinstance(value, dict):
            return {key: cleaned(item) for key, item in value.items() if not key.startswith("Bench P2POp")}
        return [cleaned(item) for item in value] if isinstance(value, list) else value

    return json.dumps(cleaned(value), sort_keys=True)


def test_functions_of_either_line(pairs, binary, tmp_path):  # noqa: F811
    target, golden = pairs["recorded_md5"]
    program = f"""
from msprobe.pytorch import MsprobeError, compare, compare_distributed
sides = {{"npu_json_path": {str(target)!r}, "bench_json_path": {str(golden)!r}, "stack_json_path": ""}}
compare(sides, "first", stack_mode=True, auto_analyze=False)
compare_distributed({str(target.parent.parent)!r}, {str(golden.parent.parent)!r}, "distributed")
from msprobe.pytorch.compare.distributed_compare import compare_distributed as of_26
from msprobe.pytorch.compare.pt_compare import pt_compare
pt_compare({{"npu_path": {str(target)!r}, "bench_path": {str(golden)!r}}}, "second", xlsx=True)
of_26({str(target.parent.parent)!r}, {str(golden.parent.parent)!r}, "second_distributed")
from msprobe.pytorch import compare as again
again(sides, "third")
try:
    compare({{"npu_path": "nowhere", "bench_path": "nowhere"}}, "fourth")
except MsprobeError as error:
    print(error)
"""
    ended = run([sys.executable, "-c", program], MSPROBE_SERVER_BINARY=binary, cwd=tmp_path)
    assert "nowhere does not exist" in ended.stdout
    names = {path.parent.name: path.name.rstrip("0123456789.xlscv") for path in tmp_path.glob("*/compare_result_*")}
    assert names == {
        "first": "compare_result_",
        "distributed": "compare_result_proc1_",
        "second": "compare_result_",
        "second_distributed": "compare_result_proc1_",
        "third": "compare_result_",
    }
    assert [path.parent.name for path in sorted(tmp_path.glob("*/advisor_*.txt"))] == ["distributed", "third"]
    rows = [tuple(cell.value for cell in row) for row in itertools.islice(sheet_of(only_xlsx(tmp_path / "first")), 2)]
    assert rows[0][-2:] == ("Result", "NPU_Stack_Info") and rows[1][-1].startswith("['File")


def test_importing_the_agent_does_not_load_the_comparison():
    program = "import sys, msprobe.pytorch; print([name for name in sys.modules if name.startswith('msprobe_client')])"
    assert run([sys.executable, "-c", program]).stdout.strip().endswith("[]")

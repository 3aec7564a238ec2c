"""Our result tables against mindstudio-probe's own, cell for cell, except for rows of docs/compatibility.md."""

import copy
import csv
import json
import math
import os
import pathlib
import random
import shutil
import sys

import pytest
from harness.processes import run

# Runs every pair in one process: the tool's imports alone take seconds.
ORACLE = """
import json, sys
from msprobe.pytorch.compare.pt_compare import pt_compare
for pair in json.load(open(sys.argv[1])):
    pt_compare({"npu_path": pair["target"], "bench_path": pair["golden"]}, pair["out"], fuzzy_match=pair["fuzzy"])
"""


@pytest.fixture(scope="module")
def binary():
    named = pathlib.Path(
        os.environ.get("MSPROBE_SERVER_BINARY", pathlib.Path(sys.executable).parent / "msprobe-server")
    )
    if not named.exists():
        pytest.skip(f"no msprobe-server at {named}: run `make build` or set MSPROBE_SERVER_BINARY")
    return named


def leaf(dtype="torch.float32", shape=(2, 3), stats=(1.5, -2.25, 0.125, 3.0), grad=False, **more):
    names = ("Max", "Min", "Mean", "Norm")
    return {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": list(shape),
        **dict(zip(names, stats, strict=True)),
        "requires_grad": grad,
        **more,
    }


def entry(inputs, outputs, kwargs=None):
    return {"input_args": inputs, "input_kwargs": kwargs or {}, "output": outputs}


def scalar(value):
    return {"type": type(value).__name__, "value": value}


NAN, INF = math.nan, math.inf


def wild_pair():
    """Values, kinds and partners of every sort the rules know."""
    odd = [
        (NAN, 1.0), (1.0, NAN), (NAN, NAN), (INF, INF), (INF, 1.0), (1.0, INF), (-INF, 1.0), (1.0, -INF), (INF, -INF),
        (0.0, -0.0), (-0.0, 0.0), (3.0, 0.0), (0.0, 3.0), (1e-30, 0.0), (1e300, 1e-300), (5, 5.0), (7, 3),
        (1e16, 1e15), (123456789012345680.0, 1.0), (5e-324, 1.0), (True, False), (None, 1.0), (1.0, None), (NAN, None),
        (2.5e-5, 1e-4),
    ]  # fmt: skip
    target, golden = {}, {}
    for index, (a, b) in enumerate(odd):
        name = f"Functional.odd.{index}.forward"
        target[name] = entry([leaf(stats=(1.0, 1.0, 1.0, 1.0))], [leaf(stats=(a, a, a, a))])
        golden[name] = entry([leaf(stats=(1.0, 1.0, 1.0, 1.0))], [leaf(stats=(b, b, b, b))])
    kinds = [
        (scalar(1), scalar(2)), (scalar(1), scalar(1.0)), (scalar("a"), scalar("b")), (scalar("1"), scalar("2")),
        (scalar(True), scalar(1)), (scalar(True), scalar(False)), (scalar("cpu"), scalar("npu:0")), (None, scalar(1)),
        (scalar("x"), None), (scalar(2.0), scalar("2.0")), (scalar("nan"), scalar("1")), (scalar("inf"), scalar("2")),
        ({"type": "torch.dtype", "value": "torch.float32"}, {"type": "torch.dtype", "value": "torch.float16"}),
        ({"type": "torch.Size", "value": [1, 2]}, {"type": "torch.Size", "value": [1, 3]}),
        ({"type": "slice", "value": [None, 2, None]}, {"type": "slice", "value": [0, 2, None]}),
        ({"type": "ellipsis", "value": "..."}, {"type": "ellipsis", "value": "..."}),
        (leaf(), None), (None, leaf()), (leaf(), scalar(1)), (leaf(grad=True), leaf()),
        (leaf("torch.float16"), leaf("torch.bfloat16")), (leaf("torch.int64", stats=(3, 1, None, None)), leaf()),
        (leaf(shape=(2, 3)), leaf(shape=(3, 2))), (leaf(shape=()), leaf(shape=(1,))), ([leaf(), [leaf()]], [leaf()]),
        ({"b": leaf(), "a": [scalar(1), None]}, {"a": [scalar(1), None], "b": leaf()}), ([], {}),
    ]  # fmt: skip
    for index, (a, b) in enumerate(kinds):
        name = f"Torch.kind.{index}.forward"
        target[name] = entry([a, scalar(0.5)], [leaf()], {"mode": a})
        golden[name] = entry([b, scalar(0.5)], [leaf()], {"mode": b})
    grown = [(0.001, 0.2), (0.001, 0.6), (0.0, 0.2), (0.0, 0.05), (0.2, 3.0), (0.05, 0.4), (0.09, 0.89)]
    for index, (inner, outer) in enumerate(grown):
        for way in ("forward", "backward"):
            name = f"Functional.qkv_grown.{index}.{way}"
            keys = ("input_args", "output") if way == "forward" else ("input", "output")
            values = [[leaf(stats=(1, 1, 1, 10 * (1 + by)))] for by in (inner, outer)]
            target[name] = dict(zip(keys, values, strict=True))
            golden[name] = {key: [leaf(stats=(1, 1, 1, 10.0))] for key in keys}
    for name in ("Torch.empty.0.forward", "Tensor.to.3.forward", "Distributed.all_to_all_single.0.forward"):
        target[name] = entry([leaf(stats=(1, 1, 1, NAN))], [leaf(stats=(INF, 1, 1, 9.0)), scalar(4)])
        golden[name] = entry([leaf(stats=(1, 1, 1, 1))], [leaf(stats=(1, 1, 1, 1.0)), scalar(5)])
    # Modules: parameters stand before outputs, whatever the order in the file; a recomputed backward counts on.
    module = {**entry([leaf()], [leaf(stats=(9.0, 1, 1, 3.0))]), "parameters": {"weight": leaf(), "bias": None}}
    target["Module.m.Linear.forward.0"] = module
    golden["Module.m.Linear.forward.0"] = copy.deepcopy(module)
    for count, side in ((0, golden), (1, target)):
        side[f"Module.m.Linear.backward.{count}"] = {"input": [leaf()], "output": [leaf(), None]}
        side["Module.m.Linear.parameters_grad.0"] = {"weight": [leaf(stats=(1, 0, 0.5, 2 + count))], "bias": [None]}
    target["Tensor.add.0.forward"] = entry([leaf()], [leaf()])
    golden["Tensor.cumsum.0.forward"] = entry([leaf()], [leaf()])
    return target, golden


def numbers_only_pair(whole):
    """No words in the columns of statistics: there the tool turns integers_among_floats into floats."""
    number = 3 if whole else 2.5
    target = {"Torch.a.0.forward": entry([leaf("torch.int64", stats=(3, 1, number, 4))], [leaf(stats=(3, 2, 3, 4))])}
    golden = {"Torch.a.0.forward": entry([leaf("torch.int64", stats=(2, 1, number, 5))], [leaf(stats=(3, 3, 4, 4))])}
    return target, golden


def tensor_pair(root):
    """Contents of every dtype, equal, near and far, with NaN and infinities, empty, 0-D and of other shapes."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(7)
    files = {"target": {}, "golden": {}}
    data = {"target": {}, "golden": {}}

    def add(index, a, b):
        name = f"Functional.op.{index}.forward"
        for side, tensor in (("target", a), ("golden", b)):
            file = f"{name}.input.0.pt"
            shape = list(tensor.shape)
            description = leaf(str(tensor.dtype), shape, (1.0, 0.0, 0.5, 2.0), data_name=file)
            output = leaf(str(tensor.dtype), shape, (1.0, 0.0, 0.5, 2.0), data_name=f"{name}.output.0.pt")
            data[side][name] = entry([description, scalar(1), None], [output])
            files[side][file] = tensor
            files[side][f"{name}.output.0.pt"] = tensor

    base = torch.randn(13, 7, generator=generator)
    spoiled = base.clone()
    spoiled[2, 3], spoiled[4, 4], spoiled[5, 5] = NAN, INF, -INF
    pairs = [
        (base, base), (base, base + 1e-4 * torch.randn(13, 7, generator=generator)), (base, -base), (base, base * 2),
        (spoiled, spoiled + 0.5), (spoiled, base), (base, spoiled), (torch.zeros(5), torch.zeros(5)),
        (torch.tensor([1.0, 2, 3]), torch.zeros(3)), (torch.zeros(3), torch.tensor([1.0, 2, 3])),
        (torch.tensor([1e-30, 0.0]), torch.zeros(2)), (torch.tensor(1.5), torch.tensor(1.25)),
        (torch.tensor(NAN), torch.tensor(1.0)), (torch.tensor([2.5]), torch.tensor([2.0])), (base[:1], base[0]),
        (base, base.T.contiguous()), (torch.empty(0), torch.empty(0)), (base.double(), base.double() + 1e-9),
        (base.bfloat16(), (base + 0.01).bfloat16()), (base.half(), (base + 0.01).half()), (base.half(), base),
        (torch.arange(9), torch.arange(9) + (torch.arange(9) % 2)), (base > 0, base > 0.1),
        (torch.arange(5, dtype=torch.uint8), torch.arange(5, dtype=torch.uint8).flip(0)),
        (torch.randn(300, 300, generator=generator), torch.randn(300, 300, generator=generator)),
        (base.T, (base + 1e-3).T), (torch.tensor(3), torch.tensor(5)), (torch.tensor(True), torch.tensor(False)),
    ]  # fmt: skip
    for index, (a, b) in enumerate(pairs):
        add(index, a, b)
    for side in files:
        directory = root / side / "dump_tensor_data"
        directory.mkdir(parents=True)
        for file, tensor in files[side].items():
            torch.save(tensor, directory / file)
    lost = files["target"].popitem()[0]
    (root / "target" / "dump_tensor_data" / lost).unlink()
    broken = root / "golden" / "dump_tensor_data" / "Functional.op.1.forward.input.0.pt"
    broken.write_bytes(broken.read_bytes()[:-200])
    return data["target"], data["golden"]


def write_side(directory, data, task, stacks=True):
    directory.mkdir(parents=True, exist_ok=True)
    dump = {"task": task, "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}
    (directory / "dump.json").write_text(json.dumps(dump))
    (directory / "construct.json").write_text("{}")
    if stacks:
        lines = ['File /a\'b.py, line 1, in <module>, \n x = "y"', 'File /ü.py, line 2, in f, \n r"\\n"']
        (directory / "stack.json").write_text(json.dumps({"0": [list(data)[::2], lines], "1": [list(data)[1::2], []]}))


# Recorded dumps, each compared with a copy whose numbers, shapes and types were changed here and there.
CHANGED = {
    "types_api": "dump/types_api/step0/proc0/dump.json",
    "types_api_md5": "dump/types_api_md5/step0/proc0/dump.json",
    "types_module": "dump/types_module/step0/proc0/dump.json",
    "types_debug": "dump/types_debug/step0/proc0/debug.json",
    "xor": "dump/train_stat_xor_L1/step0/proc0/dump.json",
    "bfloat16": "dump/train_stat_mix_bf16/step0/proc0/dump.json",
    "mindspore": "mindspore/statistics_mix/step0/proc1/dump.json",
}
OF_MINDSPORE = ("mindspore",)


def changed(document, draw):
    document = copy.deepcopy(document)

    def walk(value):
        if isinstance(value, list):
            for item in value:
                walk(item)
        if not isinstance(value, dict):
            return
        if "dtype" in value:
            for name in ("Max", "Min", "Mean", "Norm"):
                if isinstance(value.get(name), int | float) and not isinstance(value[name], bool):
                    chance = draw.random()
                    value[name] = (
                        value[name] * 1.5 if chance < 0.1
                        else NAN if chance < 0.12
                        else INF if chance < 0.14
                        else 0.0 if chance < 0.16
                        else value[name]
                    )  # fmt: skip
            if value.get("md5") and draw.random() < 0.2:
                value["md5"] = "00112233"
            if draw.random() < 0.03:
                value["shape"] = [7]
            if draw.random() < 0.03 and "requires_grad" in value:
                value["requires_grad"] = not value["requires_grad"]
            if draw.random() < 0.03:
                value["dtype"] = "torch.float16"
        elif "value" in value and draw.random() < 0.1:
            value["value"] = None
        for item in value.values():
            walk(item)

    walk(document["data"])
    for name in list(document["data"]):
        if draw.random() < 0.05:
            del document["data"][name]
    return document


def with_checksums(pair):
    def walk(value, seed):
        if isinstance(value, dict):
            if value.get("type") == "torch.Tensor":
                value["md5"] = f"{hash((json.dumps(value['Max']), seed)) & 0xFFFFFFFF:08x}"
            for item in value.values():
                walk(item, seed)
        elif isinstance(value, list):
            for item in value:
                walk(item, seed)

    for side in pair:
        walk(side, 1)
    return pair


@pytest.fixture(scope="module")
def tables(tmp_path_factory, reference, oracle_python, binary):
    """Both tools' tables of every pair: name -> (ours, theirs)."""
    root = tmp_path_factory.mktemp("compare")
    pairs = {}

    def made(name, pair, task, stacks=True):
        for side, data in zip(("target", "golden"), pair, strict=True):
            write_side(root / name / side, data, task, stacks)
        pairs[name] = (root / name / "target", root / name / "golden")

    made("wild", wild_pair(), "statistics")
    made("wild_without_stacks", wild_pair(), "statistics", stacks=False)
    made("wild_checksums", with_checksums(wild_pair()), "statistics")
    made("integers_among_floats", numbers_only_pair(whole=False), "statistics")
    made("integers", numbers_only_pair(whole=True), "statistics")
    made("tensors", tensor_pair(root / "tensors"), "tensor")
    for mode in ("statistics", "md5", "tensor"):
        recorded = reference / "compare"
        pairs[f"recorded_{mode}"] = tuple(recorded / f"{mode}_{side}" / "step0/proc1" for side in ("perturb", "golden"))
        pairs[f"recorded_{mode}_with_itself"] = (pairs[f"recorded_{mode}"][0],) * 2
    for name, path in CHANGED.items():
        recorded = reference / path
        if name in OF_MINDSPORE and not recorded.exists():
            continue
        other = root / f"changed_{name}" / recorded.name
        other.parent.mkdir()
        other.write_text(json.dumps(changed(json.loads(recorded.read_text()), random.Random(name))))
        pairs[f"changed_{name}"] = (recorded, other)
        pairs[f"changed_{name}_reversed"] = (other, recorded)
    pairs = {
        name: tuple(side / "dump.json" if side.is_dir() else side for side in pair) for name, pair in pairs.items()
    }
    requests = [
        {
            "target": str(target),
            "golden": str(golden),
            "out": str(root / "theirs" / name),
            "fuzzy": False,
        }
        for name, (target, golden) in pairs.items()
    ]
    (root / "requests.json").write_text(json.dumps(requests))
    run([oracle_python, "-c", ORACLE, root / "requests.json"], PYTHONPATH=None, OMP_NUM_THREADS=1, timeout=300)
    for name, (target, golden) in pairs.items():
        compare(binary, target, golden, root / "ours" / name)
    yield {name: tuple(only(root / side / name) for side in ("ours", "theirs")) for name in pairs}
    shutil.rmtree(root, ignore_errors=True)


def compare(binary, target, golden, out, *options):
    command = "from msprobe_client.compat.legacy import main; main()"
    arguments = ["compare", "-tp", target, "-gp", golden, "-o", out, *options]
    run([sys.executable, "-c", command, *arguments], MSPROBE_SERVER_BINARY=binary)


def only(directory):
    (result,) = directory.glob("*compare_result_*.csv")
    return result


NAMES = (
    *(f"changed_{name}{way}" for name in CHANGED for way in ("", "_reversed")),
    "wild",
    "wild_without_stacks",
    "wild_checksums",
    "integers_among_floats",
    "integers",
    "tensors",
    "recorded_statistics",
    "recorded_md5",
    "recorded_tensor",
    "recorded_statistics_with_itself",
    "recorded_md5_with_itself",
    "recorded_tensor_with_itself",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_tables_are_the_same_cell_for_cell(name, tables, request):
    if name.removeprefix("changed_").removesuffix("_reversed") in OF_MINDSPORE:
        request.getfixturevalue("mindspore_reference")
    ours, theirs = tables[name]
    with ours.open(newline="") as a, theirs.open(newline="") as b:
        left, right = list(csv.DictReader(a)), list(csv.DictReader(b))
    assert list(left[0]) == list(right[0])
    assert [row["NPU Name"] for row in left] == [row["NPU Name"] for row in right]
    differences = []
    for x, y in zip(left, right, strict=True):
        differences += [
            (x["NPU Name"], column, x[column], y[column]) for column in y if not same_cell(column, x[column], y[column])
        ]
    assert not differences, "\n".join(map(str, differences[:20]))
    exact = "tensor" not in name
    if exact:
        assert ours.read_bytes() == theirs.read_bytes()


def same_cell(column, ours, theirs):
    """EucDist's last digits are those of a BLAS (docs/compatibility.md, "euclidean-distance")."""
    if ours == theirs:
        return True
    try:
        return column == "EucDist" and math.isclose(float(ours), float(theirs), rel_tol=1e-13)
    except ValueError:
        return False


def test_the_result_of_directories_is_named_after_the_rank(tables, reference, binary, tmp_path):
    step = reference / "compare" / "statistics_perturb" / "step0"
    compare(binary, step, step, tmp_path)
    assert only(tmp_path).name.startswith("compare_result_proc1_")
    assert only(tmp_path).read_bytes() == tables["recorded_statistics_with_itself"][0].read_bytes()

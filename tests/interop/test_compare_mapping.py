"""Result tables of pairs whose names differ, matched by mapping files: cell for cell mindstudio-probe's, but for the
rows of docs/compatibility.md that begin with "frameworks-" and "mapped-"."""

import copy
import csv
import json
import random

import pytest
import yaml
from harness.processes import run

# The MindSpore half is imported without its package, which needs mindspore itself.
ORACLE = """
import json, sys, types, pathlib
import msprobe
from msprobe.pytorch.compare.pt_compare import pt_compare
package = types.ModuleType("msprobe.mindspore")
package.__path__ = [str(pathlib.Path(msprobe.__file__).parent / "mindspore")]
sys.modules["msprobe.mindspore"] = package
from msprobe.mindspore.compare.ms_compare import ms_compare
for pair in json.load(open(sys.argv[1])):
    compare = ms_compare if pair["mindspore"] else pt_compare
    compare({"npu_path": pair["target"], "bench_path": pair["golden"]}, pair["out"], **pair["options"])
"""


def renamed(dump, rename, leaf=lambda leaf: leaf):
    def walk(value):
        if isinstance(value, dict):
            if "dtype" in value:
                return leaf(dict(value))
            return {key: walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list) else value

    return {**dump, "data": {rename(name): walk(entry) for name, entry in dump["data"].items()}}


def nudged(draw):
    """Moves a number of some tensors."""

    def leaf(value):
        if draw.random() < 0.2 and isinstance(value.get("Norm"), float):
            value["Norm"] *= draw.choice([0.5, 1.001, 3.0])
        return value

    return leaf


def to_pytorch(name):
    if name.startswith("Functional."):  # ops.relu takes the name of mint's relu
        name = name.replace(".relu.0", ".relu.9")
    for mindspore, pytorch in (
        ("Cell.", "Module."),
        ("MintFunctional.", "Functional."),
        ("Mint.", "Torch."),
        ("Functional.rank", "Tensor.dim"),
        ("Dense", "Linear"),
    ):
        name = name.replace(mindspore, pytorch)
    return name


def torch_leaf(value):
    dtype = {"Float32": "torch.float32", "Int32": "torch.int64", "Bool": "torch.bool"}.get(value["dtype"])
    return {**value, "type": "torch.Tensor", "dtype": dtype or value["dtype"], "requires_grad": True}


API_MAPPING = [
    {
        "ms_api": "Functional.flatten",
        "pt_api": "Functional.flatten",
        "ms_args": [0],
        "pt_args": [0],
        "ms_output": [0],
        "pt_output": [0],
    },
    {
        "ms_api": "Tensor.__add__",
        "pt_api": "Tensor.__add__",
        "ms_args": [0, 1],
        "pt_args": [1, 0],
        "ms_output": [0],
        "pt_output": [0],
    },
]


def mindspore_cases(ms_dump):
    crossed = renamed(ms_dump, to_pytorch, torch_leaf)
    crossed["framework"] = "pytorch"
    deeper = renamed(ms_dump, lambda name: name.replace("Cell.net.", "Cell.inner.net.").replace("LeNet", "Lenet5"))
    return {
        "cells": (ms_dump, crossed, True, {"cell_mapping": {"Dense": "Linear"}}),
        "cells_named": (ms_dump, crossed, True, {"cell_mapping": {"Dense": "Linear"}}),
        "apis": (ms_dump, crossed, True, {"api_mapping": True}),
        "apis_named": (ms_dump, crossed, True, {"api_mapping": API_MAPPING}),
        "rows_across": (ms_dump, crossed, True, {"data_mapping": {"Cell.net.fc2.Dense.forward.0.output.0": "x"}}),
        "layers": (ms_dump, deeper, True, {"layer_mapping": {"TopLayer": {"net": "inner.net"}}}),
        "layers_across": (ms_dump, crossed, True, {"layer_mapping": {"Cell": {}}}),
        "layers_moved": (
            ms_dump,
            crossed,
            True,
            {"layer_mapping": {"TopLayer": {"net": "net"}, "LeNet": {"conv1": "conv2", "conv2": "conv1"}}},
        ),
    }


@pytest.fixture(scope="module")
def cases(reference):
    """name -> (target, golden, is MindSpore's, options of the tool with the content of each file)."""
    pytorch = reference / "compare/statistics_golden/step0/proc1"
    torch_dump = json.loads((pytorch / "dump.json").read_text())
    draw = random.Random(7)
    linear = renamed(torch_dump, lambda name: name.replace("Functional.linear", "Functional.gemm"), nudged(draw))
    blocks = renamed(torch_dump, lambda name: name.replace(".layers.", ".blocks.").replace("Qwen2MLP", "MLP"))
    rows = {
        f"Functional.linear.{i}.forward.{way}": f"Functional.gemm.{i}.forward.{way}"
        for i in range(0, 20, 3)
        for way in ("input.0", "input.1", "output.0")
    }
    found = {
        "rows": (torch_dump, linear, False, {"data_mapping": rows}),
        "cell_parts": (torch_dump, blocks, False, {"cell_mapping": {"layers": "blocks", "Qwen2MLP": "MLP"}}),
        "cell_whole": (
            torch_dump,
            blocks,
            False,
            {"cell_mapping": {"model.layers.0.mlp.Qwen2MLP": "model.blocks.0.mlp.MLP", "Qwen2MLP": "no"}},
        ),
    }
    path = reference / "mindspore/statistics_mix/step0/proc1/dump.json"
    return found | (mindspore_cases(json.loads(path.read_text())) if path.exists() else {})


@pytest.fixture(scope="module")
def tables(cases, reference, oracle_python, tmp_path_factory):
    """name -> (ours, theirs)."""
    client_module = pytest.importorskip("msprobe_client.client")
    from msprobe_client import name_mapping

    root = tmp_path_factory.mktemp("mapping")
    requests = []
    made = {}
    for name, (target, golden, mindspore, options) in cases.items():
        origin = reference / ("mindspore/statistics_mix" if mindspore else "compare/statistics_golden") / "step0/proc1"
        for side, dump in (("target", target), ("golden", golden)):
            (root / name / side).mkdir(parents=True)
            (root / name / side / "dump.json").write_text(json.dumps(dump))
            for file in ("stack.json", "construct.json"):
                text = (origin / file).read_text()
                if side == "golden":
                    text = json.dumps(_with_names(json.loads(text), target, golden))
                (root / name / side / file).write_text(text)
        files = {}
        for option, content in copy.deepcopy(options).items():
            files[option] = content
            if content is not True:
                (root / name / f"{option}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
                files[option] = str(root / name / f"{option}.yaml")
        paths = {side: str(root / name / side / "dump.json") for side in ("target", "golden")}
        (root / name / "theirs").mkdir()
        requests.append({**paths, "out": str(root / name / "theirs"), "mindspore": mindspore, "options": files})
        made[name] = (paths, {option.removesuffix("_mapping"): value for option, value in files.items()})
    (root / "requests.json").write_text(json.dumps(requests))
    run([oracle_python, "-c", ORACLE, root / "requests.json"], PYTHONPATH=None, timeout=300)
    found = {}
    with client_module.Client(data_dir=root / "data", create=True) as client:
        for name, (paths, files) in made.items():
            if name in WITHOUT_A_FILE:
                files = dict.fromkeys(files, True)
            mapping = name_mapping.mapping(**files)
            reports = client.compare_tables(
                paths["target"],
                paths["golden"],
                root / name / "ours",
                file_name=lambda chunk: "compare_result_.csv",
                mapping=mapping,
            )
            list(reports)
            compared = list(client.compare(paths["target"], paths["golden"], mapping=mapping, rows="all"))
            found[name] = (*((root / name / side) for side in ("ours", "theirs")), compared)
    return found


def _with_names(value, target, golden):
    """The same document with the golden side's names in place of the target's."""
    names = dict(zip(target["data"], golden["data"], strict=True))

    def walk(item):
        if isinstance(item, dict):
            return {names.get(key, key): walk(each) for key, each in item.items()}
        if isinstance(item, list):
            return [walk(each) for each in item]
        return names.get(item, item) if isinstance(item, str) else item

    return walk(value)


# Known names alone, where the tool needs a file: "frameworks-classes".
WITHOUT_A_FILE = ("cells",)
MOVED = "layers_moved"  # its partners have other names
OF_MINDSPORE = (
    "cells",
    "cells_named",
    "apis",
    "apis_named",
    "rows_across",
    "layers",
    "layers_across",
    "layers_moved",
)
NAMES = ("rows", "cell_parts", "cell_whole", *OF_MINDSPORE)


@pytest.fixture(autouse=True)
def recorded(name, request):
    """A test of MindSpore's dump is skipped where there is none."""
    if name in OF_MINDSPORE:
        request.getfixturevalue("mindspore_reference")


def table(directory):
    (path,) = directory.glob("compare_result_*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fair(row):
    """The tool's row of a pair of frameworks without the two messages that it has for every tensor."""
    tensors = row["NPU Dtype"] != "N/A" and row["Bench Dtype"].startswith("torch.")
    unfair = ("Required_Grad", "The dtype") if tensors else ("Required_Grad",)
    messages = [each for each in json.loads(row["Err_message"]) if not any(word in each for word in unfair)]
    worst = [word for word in ("error", "warning") if any(message.startswith(word) for message in messages)]
    return {**row, "Err_message": json.dumps(messages), "Result": (worst or ["pass"])[0]}


@pytest.mark.parametrize("name", NAMES)
def test_the_table_is_the_same_cell_for_cell(name, tables, cases):
    ours, theirs = map(table, tables[name][:2])
    target, golden, *_ = cases[name]
    partner_of = dict(zip(target["data"], golden["data"], strict=True))
    shifted = 0
    for left, right in zip(ours, theirs, strict=True):
        assert list(left) == list(right)
        call = left["NPU Name"].partition(".input.")[0].partition(".output.")[0]
        if ".backward" in call and left["Bench Name"] != right["Bench Name"]:  # "mapped-backward"
            assert name == MOVED or left["Bench Name"] in (
                "N/A",
                partner_of[call] + left["NPU Name"].removeprefix(call),
            )
            shifted += 1
            continue
        assert left == (fair(right) if golden["framework"] != target["framework"] else right)
    assert shifted < len(ours) / 2


@pytest.mark.parametrize("name", NAMES)
def test_the_verdicts_pair_what_the_table_pairs(name, tables):
    paired = sum(row["Bench Name"] != "N/A" for row in table(tables[name][1]))
    rows = [row for row in tables[name][2] if hasattr(row, "verdict")]
    ours = sum(row.verdict not in ("target only", "golden only") for row in rows)
    assert ours >= paired > 0

"""`msprobe config_check`, held to mindstudio-probe's own on the same packs, scripts, logs and checkpoints."""

import json
import math
import pathlib
import random
import zipfile

import config_packs
import config_program
import openpyxl
import pytest
import torch
from harness.processes import run
from msprobe_client.compat import config_check_command

# All requests in one process: its imports alone take seconds. Its loader asks for Megatron, and needs none.
ORACLE = """
import argparse, json, sys, types
sys.modules["megatron"] = types.ModuleType("megatron")
from msprobe.core.config_check.config_check_cli import _config_checking_parser, _run_config_checking_command
parser = argparse.ArgumentParser()
_config_checking_parser(parser)
for words in json.load(open(sys.argv[1])):
    _run_config_checking_command(parser.parse_args(words))
sys.path.insert(0, sys.argv[2])
del sys.modules["megatron"]
from msprobe.core.config_check import ConfigChecker
ConfigChecker.pre_forward_fun_list.clear()  # of the pack before, to which the model's would go, too
import config_program
config_program.train(sys.argv[3])
"""
HERE = pathlib.Path(__file__).parent


def ours(*words):
    config_check_command._run(config_check_command.parser().parse_args([str(word) for word in words]))


def megatron(directory, weights, layers_a_rank=2):
    """Two pipeline ranks of two tensor ranks, in Megatron-LM's format `torch`."""
    from argparse import Namespace

    args = Namespace(
        tensor_model_parallel_size=2, pipeline_model_parallel_size=2, expert_model_parallel_size=1, num_experts=None,
        num_layers=4, hidden_size=8, num_attention_heads=2, num_query_groups=2, kv_channels=4, swiglu=False,
        ffn_hidden_size=16, group_query_attention=False,
    )  # fmt: skip
    for stage in range(2):
        for rank in range(2):
            part = {}
            for name, tensor in weights.items():
                index = next((int(word) for word in name.split(".") if word.isdigit()), None)
                if index is not None and index // layers_a_rank != stage:
                    continue
                if index is None and stage != 0:
                    continue
                local = name if index is None else name.replace(f"layers.{index}.", f"layers.{index % layers_a_rank}.")
                axis = (
                    0
                    if "linear_fc1" in name or "word_embeddings" in name
                    else 1
                    if "weight" in name and "norm" not in name
                    else None
                )
                part[local] = tensor if axis is None else tensor.chunk(2, axis)[rank].clone()
            folder = directory / "iter_0000010" / f"mp_rank_{rank:02d}_{stage:03d}"
            folder.mkdir(parents=True)
            torch.save({"args": args, "model": part, "iteration": 10}, folder / "model_optim_rng.pt")
    (directory / "latest_checkpointed_iteration.txt").write_text("10")
    return directory


def write_checkpoints(root):
    torch.manual_seed(1)
    weights = {
        "embedding.word_embeddings.weight": torch.randn(16, 8),
        "decoder.layers.3.input_layernorm.weight": torch.zeros(8),
    }
    for layer in range(4):
        weights[f"decoder.layers.{layer}.mlp.linear_fc1.weight"] = torch.randn(16, 8)
        weights[f"decoder.layers.{layer}.mlp.linear_fc2.weight"] = torch.randn(8, 16)
    other = {name: tensor.clone() for name, tensor in weights.items()}
    other["decoder.layers.2.mlp.linear_fc1.weight"][3, 4] += 1
    return megatron(root / "a", weights), megatron(root / "b", other)


VARIANTS = {
    "plain": {},
    "others_between": {
        "prefix": "(TaskRunner pid=1) ",
        "foreign": {4: "(WorkerDict pid=2) loading weights", 7: "(WorkerDict pid=3) {'a': 1,"},
    },
}


@pytest.fixture(scope="module")
def results(tmp_path_factory, oracle_python):
    """Directories of either tool's results, and the inputs."""
    root = tmp_path_factory.mktemp("config_check")
    requests = {}
    for name, (bench, cmp) in config_packs.write_packs(root).items():
        requests[f"packs_{name}"] = ["-c", str(bench), str(cmp)]
    other = json.loads(json.dumps(config_packs.VERL))
    other["actor_rollout_ref"]["actor"]["optim"]["lr"] = 2e-06
    other["data"]["new"] = None
    for name, options in VARIANTS.items():
        (root / f"{name}.log").write_text(config_packs.verl_log(config_packs.VERL, **options))
    (root / "other.txt").write_text(config_packs.verl_log(other))
    for name in VARIANTS:
        requests[f"verl_{name}"] = ["-vc", str(root / f"{name}.log"), str(root / "other.txt")]
    requests["verify"] = ["-vv", str(root / "plain.log")]
    (root / "wanted.yaml").write_text("data: {shuffle: false, absent: 1}\ntrainer: {nnodes: 2}\n")
    requests["verify_by"] = ["-vv", str(root / "wanted.yaml"), str(root / "plain.log")]
    (root / "slime_a.log").write_text(
        config_packs.slime_log({"lr": 1e-06, "bf16": True, "profile_dir": "/a", "name": "a b", "seed": 42})
    )
    (root / "slime_b.log").write_text(config_packs.slime_log({"lr": 1e-06, "bf16": False, "seed": 42.0, "extra": -3}))
    requests["slime"] = ["-sc", str(root / "slime_a.log"), str(root / "slime_b.log")]
    (root / "train.sh").write_text(config_packs.SCRIPT)
    (root / "train.yaml").write_text(config_packs.YAML)
    (root / "second.yaml").write_text("seed: 43\n")
    requests["dump"] = ["-d", *(str(root / name) for name in ("train.sh", "train.yaml", "second.yaml"))]
    requests["checkpoints"] = ["-c", *map(str, write_checkpoints(root))]
    endings = {"dump": "pack.zip", "checkpoints": "similarity.json"}
    asked = {tool: [] for tool in ("ours", "theirs")}
    for tool, words in asked.items():
        (root / tool).mkdir()
        words += [[*given, "-o", str(root / tool / name / endings.get(name, ""))] for name, given in requests.items()]
        (root / tool / "checkpoints").mkdir()
    for words in asked["ours"]:
        ours(*words)
    (root / "asked.json").write_text(json.dumps(asked["theirs"]))
    command = [oracle_python, "-c", ORACLE, root / "asked.json", HERE, root / "theirs" / "trained.zip"]
    run(command, PYTHONPATH=None, OMP_NUM_THREADS=1, timeout=300)
    return root


def sheets(path):
    book = openpyxl.load_workbook(path)
    return {sheet.title: [[cell.value for cell in row] for row in sheet.iter_rows()] for sheet in book.worksheets}


def named_differences(name, rows):
    """Their rows as they stand here: docs/compatibility.md, "Files of `msprobe config_check`"."""
    if name == "env":
        # config-check-sides: what stands under bench is the comparison's
        only = ["only bench has this env", "only cmp has this env"]
        swapped = dict(zip(only, reversed(only), strict=True))
        rows = [[*(swapped.get(row[at], row[at]) for at in (1, 0, 3, 2)), row[4]] for row in rows]
        # config-check-pcie: the second row of HCCL_INTRA_ROCE_ENABLE is PCIE's, which is not set: its default is 1
        for at in [at for at, row in enumerate(rows) if "HCCL_INTRA_ROCE_ENABLE" in row][1:]:
            pcie = {"HCCL_INTRA_ROCE_ENABLE": "HCCL_INTRA_PCIE_ENABLE", "1": 1}
            rows[at] = [pcie.get(cell, cell) for cell in rows[at]]
    if name in ("dataset", "weights"):  # config-check-relative
        rows = [[*row[:4], *(abs(cell) if isinstance(cell, float | int) else cell for cell in row[4:])] for row in rows]
    return rows


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["full", "reversed", "npus", "same"])
def test_workbooks_have_the_same_rows(name, results):
    mine, theirs = (sheets(results / tool / f"packs_{name}" / "result.xlsx") for tool in ("ours", "theirs"))
    assert list(mine) == list(theirs)
    for sheet, rows in theirs.items():
        assert mine[sheet][0] == rows[0]
        expected = named_differences(sheet, rows[1:])
        if sheet in ("weights", "dataset", "random"):  # theirs are in the order of a set
            assert sorted(mine[sheet][1:], key=str) == sorted(expected, key=str)
        else:
            assert mine[sheet][1:] == expected


def test_results_have_the_workbook_alone(results):
    assert [path.name for path in (results / "ours" / "packs_full").iterdir()] == ["result.xlsx"]


def test_pcie_is_a_variable_of_its_own(tmp_path):
    with_pcie = {**config_packs.NPU, "HCCL_INTRA_PCIE_ENABLE": "0", "ASCEND_LAUNCH_BLOCKING": "0"}
    a, b = (
        config_packs.pack(tmp_path / f"{name}.zip", environment, {})
        for name, environment in (("a", config_packs.NPU), ("b", with_pcie))
    )
    ours("-c", a, b, "-o", tmp_path / "result")
    rows = sheets(tmp_path / "result" / "result.xlsx")["env"][1:]
    assert rows == [["HCCL_INTRA_PCIE_ENABLE", "HCCL_INTRA_PCIE_ENABLE", 1, "0", "error"]]


@pytest.mark.parametrize("name", [*(f"verl_{name}" for name in VARIANTS), "verify", "verify_by", "slime"])
def test_values_that_were_used_are_the_same_byte_for_byte(name, results):
    mine, theirs = (results / tool / name for tool in ("ours", "theirs"))
    assert sorted(path.name for path in mine.iterdir()) == sorted(path.name for path in theirs.iterdir())
    for path in mine.iterdir():
        other = theirs / path.name
        if path.suffix == ".json":
            assert json.loads(path.read_text()) == json.loads(other.read_text())
        else:
            assert path.read_bytes() == other.read_bytes()


def test_packs_have_the_same_members(results):
    mine, theirs = (zipfile.ZipFile(results / tool / "dump" / "pack.zip") for tool in ("ours", "theirs"))
    assert mine.namelist() == theirs.namelist()
    static = "hyperparameters/hyperparameters_static.json"
    assert json.loads(mine.read(static)) == json.loads(theirs.read(static))
    assert set(json.loads(mine.read("env"))) >= {"PATH"}


def test_checkpoints_have_the_same_numbers(results):
    mine, theirs = (
        json.loads((results / tool / "checkpoints" / "similarity.json").read_text()) for tool in ("ours", "theirs")
    )
    assert mine.keys() == theirs.keys()
    for name, numbers in theirs.items():
        assert (mine[name]["numel"], mine[name]["shape"]) == (numbers["numel"], numbers["shape"])
        for key in ("l2", "cos"):
            assert math.isclose(mine[name][key], numbers[key], rel_tol=1e-6, abs_tol=1e-6), (name, key)
    assert mine["decoder.layers.3.input_layernorm.weight"]["cos"] == 1
    assert mine["decoder.layers.2.mlp.linear_fc1.weight"]["l2"] == pytest.approx(1)


def members(path, folder):
    with zipfile.ZipFile(path) as file:
        return {name: json.loads(file.read(name)) for name in file.namelist() if name.startswith(f"{folder}/")}


def test_packs_of_a_training_run_are_the_same(results, tmp_path):
    draw = random.random
    checker = config_program.train(tmp_path / "trained.zip")
    assert random.random is draw, "put back at the first pass"
    checker.close()
    mine, theirs = tmp_path / "trained.zip", results / "theirs" / "trained.zip"
    for folder in ("dataset", "weights"):
        assert members(mine, folder) == members(theirs, folder)
    program = str(HERE / "config_program.py")

    def calls(path):
        return {
            op: [(call["count"], [frame for frame in call["stack"] if program in frame]) for call in found]
            for op, found in members(path, "random")["random/rank0.json"].items()
        }

    assert calls(mine) == calls(theirs)
    assert set(members(mine, "checksums")) == {f"checksums/dataset/step{step}/rank0/dataset.json" for step in range(2)}
    ours("-c", mine, theirs, "-o", tmp_path / "result")
    verdicts = dict(sheets(tmp_path / "result" / "result.xlsx")["summary"][1:])
    assert (verdicts["dataset"], verdicts["weights"]) == ("pass", "pass")

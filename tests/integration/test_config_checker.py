"""ConfigChecker in a training program: it packs, and never harms."""

import json
import os
import random
import warnings
import zipfile

import numpy
import pytest
import torch
from msprobe._common.errors import MsprobeError
from msprobe.core.config_check import ConfigChecker


def members(path):
    with warnings.catch_warnings(), zipfile.ZipFile(path) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


class Takes(torch.nn.Module):
    """A model that takes anything."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, *args, **kwargs):
        return self.layer(torch.ones(1, 2))


def test_odd_inputs_are_packed_and_change_nothing(tmp_path):
    model = Takes()
    circle = []
    circle.append(circle)
    odd = [
        torch.empty(0), torch.tensor([1 + 2j, 3 - 4j]), torch.eye(3).to_sparse(), torch.empty(3, device="meta"),
        torch.tensor([float("nan"), 1.0]), torch.full((4000, 3000), 1000.0, dtype=torch.float16), circle, object(),
        torch.arange(6).reshape(2, 3).t(), torch.tensor(7, dtype=torch.uint8),
    ]  # fmt: skip
    expected = model(odd)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with ConfigChecker(model, None, str(tmp_path / "pack.zip")):
        got = model(odd, key={(1, 2): torch.ones(2)})
    assert torch.equal(got, expected) and torch.equal(torch.get_rng_state(), state)
    found = json.loads(members(tmp_path / "pack.zip")["dataset/step0/rank0/dataset.json"])
    args = found["args"]["0"]
    assert args["0"] == args["3"] == args["7"] == ""
    assert args["1"] == {"max": 3.0, "min": -4.0, "mean": 0.5, "norm": pytest.approx(30**0.5)}
    assert args["5"]["norm"] == pytest.approx(1000 * (4000 * 3000) ** 0.5, rel=0.01)  # beyond float16
    assert args["9"] == {"max": 7.0, "min": 7.0, "mean": 7.0, "norm": 7.0}
    assert found["kwargs"]["key"]["(1, 2)"]["max"] == 1.0


def test_inputs_in_another_order_have_another_checksum(tmp_path):
    model = Takes()
    with ConfigChecker(model, None, str(tmp_path / "pack.zip")):
        model(torch.tensor([1, 2, 3]))
        model(torch.tensor([3, 2, 1]))
        model(torch.tensor([1, 2, 3], dtype=torch.int32))
    packed = members(tmp_path / "pack.zip")
    sums = [json.loads(packed[f"checksums/dataset/step{step}/rank0/dataset.json"]) for step in range(3)]
    assert sums[0] != sums[1] and sums[0] == sums[2]


def test_a_pack_of_an_earlier_process_is_replaced_and_one_of_this_is_added_to(tmp_path):
    path = tmp_path / "pack.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("weights/step9/rank0/weight.json", "{}")
    os.utime(path, (0, 0))
    ConfigChecker(output_zip_path=str(path))
    assert set(members(path)) == {"env", "pip"}
    model = Takes()
    with ConfigChecker(model, None, str(path)):
        model()
    assert {"env", "pip", "weights/step0/rank0/weight.json"} < set(members(path))


def test_nothing_is_left_behind(tmp_path):
    before = (random.random, numpy.random.rand, torch.rand, torch.manual_seed)
    assert "exponential_" not in vars(torch.Tensor)
    ConfigChecker.apply_patches()
    ConfigChecker.apply_patches()  # changes nothing
    assert torch.rand is not before[2]
    model = Takes()
    checker = ConfigChecker(model, None, str(tmp_path / "pack.zip"))
    torch.rand(1)
    with pytest.raises(TypeError):
        torch.rand("x")
    checker.close()
    assert (random.random, numpy.random.rand, torch.rand, torch.manual_seed) == before
    assert "exponential_" not in vars(torch.Tensor)
    assert not model._forward_pre_hooks
    model()
    assert set(members(tmp_path / "pack.zip")) == {"env", "pip"}


def test_a_pass_goes_on_where_the_pack_cannot_be_written(tmp_path, capfd):
    model = Takes()
    checker = ConfigChecker(model, None, str(tmp_path / "folder" / "pack.zip"))
    (tmp_path / "folder" / "pack.zip").unlink()
    (tmp_path / "folder" / "pack.zip").mkdir()
    for _ in range(3):
        model(torch.ones(2))
    checker.close()
    said = capfd.readouterr().out
    assert said.count("does not pack the input of a pass: IsADirectoryError") == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"model": 3}, "model is a int; it should be a module of pytorch, or a list of them"),
        ({"shell_path": "train.sh"}, "shell_path is 'train.sh'; it should be a list of paths"),
        ({"shell_path": ["train.py"]}, "train.py is no launch script"),
        ({"output_zip_path": "pack.tar"}, "output_zip_path is 'pack.tar'; it should be a text that ends with .zip"),
        ({"output_zip_path": "/proc/nowhere/pack.zip"}, "output_zip_path /proc/nowhere/pack.zip cannot be written"),
        ({"fmk": "caffe"}, 'fmk is \'caffe\'; it should be "pytorch" or "mindspore"'),
    ],
)
def test_wrong_arguments_are_refused(arguments, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MsprobeError) as raised:
        ConfigChecker(**arguments)
    assert problem in str(raised.value)

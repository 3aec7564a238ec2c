"""Our tables of names against mindstudio-probe's own lists: every difference is listed here, with its reason."""

import json
import re

import pytest
from harness.processes import REPOSITORY, run
from msprobe._common.swaps import read_names
from msprobe.pytorch.interception import risk_levels

API_NAMES = REPOSITORY / "agent" / "python" / "msprobe" / "pytorch" / "api_names.txt"
MINDSPORE_NAMES = REPOSITORY / "server" / "analysis" / "compare" / "mindspore_names.cc"

# Their section -> our heading.
SECTIONS = {
    "functional": "Functional torch.nn.functional",
    "tensor": "Tensor torch.Tensor",
    "torch": "Torch torch",
    "_VF": "VF torch._VF",
    "distributed": "Distributed torch.distributed",
    "torch_npu": "NPU torch_npu",
    "npu_distributed": "Distributed torch_npu.distributed",
    "mindspeed": "MindSpeed mindspeed.ops",
}
NOT_TAKEN = {"aten": "the tool never wraps them; here `capture` and `custom_op_namespaces` select operators"}

# (their level, name) -> why only they have it; and the same for what only we have.
THEIRS_ALONE = {("CORE", "chain_matmullinear"): "a comma is missing there: it is two names"}
OURS_ALONE = {
    ("CORE", "chain_matmul"): "core-linear in docs/compatibility.md",
    ("CORE", "linear"): "core-linear in docs/compatibility.md",
}

_LISTS = """
import json, pathlib, yaml
from msprobe.pytorch.dump.api_dump import api_risk_level as risks
import msprobe.core
package = pathlib.Path(msprobe.core.__file__).parents[1]
def read(path): return yaml.safe_load((package / path).read_text())
print("LISTS" + json.dumps({
    "apis": read("pytorch/dump/api_dump/support_wrap_ops.yaml"),
    "mindspore": read("core/compare/ms_to_pt_api.yaml"),
    "CORE": sorted(risks.CORE_API_SET),
    "LOW": sorted(risks.LOW_RISK_API_SET),
}))
"""


@pytest.fixture(scope="module")
def theirs(oracle_python):
    said = run([oracle_python, "-c", _LISTS], PYTHONPATH=None).stdout
    return json.loads(said.partition("LISTS")[2])


@pytest.fixture(scope="module")
def ours():
    return read_names(API_NAMES.read_text())


def test_every_section_is_taken_or_has_a_reason(theirs, ours):
    assert set(theirs["apis"]) == {*SECTIONS, *NOT_TAKEN}
    assert set(ours) == {*SECTIONS.values(), "risk CORE", "risk LOW"}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_recorded_names_are_theirs(theirs, ours, section):
    names = ours[SECTIONS[section]]
    assert len(names) == len(set(names))
    assert set(names) == set(theirs["apis"][section])


@pytest.mark.parametrize("level", ["CORE", "LOW"])
def test_the_risk_levels_are_theirs(theirs, ours, level):
    names = {name for name, given in risk_levels(ours).items() if given == level}
    listed = set(theirs[level])
    assert {(level, name) for name in listed - names} == {key for key in THEIRS_ALONE if key[0] == level}
    assert {(level, name) for name in names - listed} == {key for key in OURS_ALONE if key[0] == level}


def test_no_name_has_two_levels(ours):
    assert not set(ours["risk CORE"]) & set(ours["risk LOW"])


def test_the_pairs_of_mindspore_and_pytorch_are_theirs(theirs):
    source = MINDSPORE_NAMES.read_text()
    functional = re.findall(r'"(\w+)"', re.search(r"kTorch\[\] = \{(.*?)\};", source, re.DOTALL)[1])
    others = re.findall(r'\{"(\w+\.\w+)", "(\w+\.\w+)"\}', source)
    assert functional == sorted(functional), "it is searched by halves"
    pairs = {f"Functional.{name}": f"Torch.{name}" for name in functional} | dict(others)
    assert len(pairs) == len(functional) + len(others)
    # Names that are the same on both sides need no row: the comparison pairs them anyway.
    assert pairs == {name: other for name, other in theirs["mindspore"].items() if name != other}

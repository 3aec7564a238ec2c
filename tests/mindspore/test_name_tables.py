"""The names whose calls are recorded are those of mindstudio-probe."""

import yaml
from harness.mindspore import environment_at
from harness.processes import REPOSITORY

OURS = REPOSITORY / "agent" / "python" / "msprobe" / "mindspore" / "api_names.txt"
SECTIONS = {
    "Functional mindspore.ops": "ops",
    "Tensor mindspore.Tensor": "tensor",
    "Mint mindspore.mint": "mint.ops",
    "MintFunctional mindspore.mint.nn.functional": "mint.nn.functional",
    "MintDistributed mindspore.mint.distributed": "mint.distributed",
    "Distributed mindspore.communication.comm_func": "communication.comm_func",
}


def test_every_section_has_their_names():
    python = environment_at("MSPROBE_MINDSPORE_ORACLE", ".oracle-mindspore", "mindspore")
    (lists,) = python.parent.parent.glob("lib/*/site-packages/msprobe/mindspore/dump/**/support_wrap_ops.yaml")
    theirs = yaml.safe_load(lists.read_text(encoding="utf-8"))
    sections = {}
    for line in OURS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = names = set()
        elif line and not line.startswith("#"):
            names.update(line.split())
    assert sections.keys() == SECTIONS.keys()
    for heading, section in SECTIONS.items():
        # "bool astype" is one name there, and means no function.
        assert sections[heading] == {str(name) for name in theirs[section] if " " not in str(name)}, heading
    assert "relu" in sections["Functional mindspore.ops"]

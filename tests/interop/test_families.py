"""Models of real families, tiny and with random weights: under either tool, inference and training dump the same."""

import families
import parity
import pytest
from allowed import FAMILY_ALLOWED
from families import FAMILIES

# What the agent has yet to do as the established tool does; a family leaves this table when it is done.
SETITEM = "x[i] = v leaves no record"
TIED = "parameters_grad of tied parameters is recorded in the first module alone"
HANDED_OUT = "grad_output of a tensor that is used inside the module too is not that from outside alone"
PENDING = {
    "mixtral_": (SETITEM, HANDED_OUT),
    "qwen2_moe_": (SETITEM, HANDED_OUT),
    "bert_train_L0": (TIED,),
    "bert_train_mix": (TIED,),
    "vit_train_L0": (HANDED_OUT,),
    "vit_train_mix": (HANDED_OUT,),
    "t5_": (SETITEM, TIED, HANDED_OUT),
    "whisper_": (SETITEM, TIED, HANDED_OUT),
    "mamba_train_L0": (TIED,),
    "mamba_train_mix": (TIED,),
    "resnet_train_L0": (HANDED_OUT,),
    "resnet_train_mix": (HANDED_OUT,),
}


def marked(cases):
    for case in cases:
        reasons = [reason for prefix, found in PENDING.items() if case.startswith(prefix) for reason in found]
        marks = [pytest.mark.xfail(reason="; ".join(reasons), strict=False)] if reasons else []
        yield pytest.param(case, marks=marks)


CASES = [
    *(f"{family}_forward_mix" for family in FAMILIES),
    *(f"{family}_train_{level}" for family in FAMILIES for level in families.LEVELS),
]
# Its blocks change outputs of their submodules in place, which no program can do beside full backward hooks of its own.
NOT_HOOKED = {"resnet"}


def judged(case, found):
    family, program, level = case.rsplit("_", 2)
    rules = [
        rule
        for (families_, programs, levels), allowed in FAMILY_ALLOWED.items()
        if family in families_.split() and program in programs.split() and level in levels.split()
        for rule in allowed
    ]
    return parity.judge(found, rules)


@pytest.mark.timeout(500)
@pytest.mark.parametrize("case", [*marked(CASES)])
def test_same_dump(case, side_by_side):
    pair = side_by_side.case(case)
    disturbed = "_train_" in case and not case.endswith("_L1")  # docs/compatibility.md, "module-backward"
    rules = parity.Rules(rounded=disturbed, signed_zeros=False)
    left, unused = judged(case, parity.compare_rank_directories(pair.ours, pair.real, rules))
    assert not left, parity.summary(left)
    assert not unused, f"allowed differences that were not found: {unused}"
    assert len(parity.read_json(pair.ours / "dump.json")["data"]) > 10


@pytest.mark.timeout(500)
@pytest.mark.parametrize("case", [*marked(f"{name}_train_mix" for name in FAMILIES if name not in NOT_HOOKED)])
def test_same_numbers_where_the_program_has_the_same_hooks(case, side_by_side):
    hooked, real = side_by_side.one(case, "ours with hooks"), side_by_side.one(case, "real")
    found = parity.compare_rank_directories(hooked, real, parity.Rules(signed_zeros=False), only={"dump.json"})
    found = [item for item in found if not item.entry.startswith("Tensor.view_as.") and "order" not in item.key]
    left, _ = judged(case, found)
    assert not left, parity.summary(left)

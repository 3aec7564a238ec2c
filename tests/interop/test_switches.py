"""Every two settings of two switches together, under either tool: the same dumps."""

import parity
import pytest
from allowed import CORE_LINEAR, Allowed
from harness.nightly import mostly_nightly
from switches import PAIRS, SWITCHES, pairs_of, possible

LINEAR_AT_CORE = [
    Allowed("Functional.linear.*", "entry", CORE_LINEAR),
    Allowed("stack.json", "extra", CORE_LINEAR),
    Allowed("dump_tensor_data", "*", CORE_LINEAR),
]
SLICED = [Allowed("dump_tensor_data", "*.stride", "sliced-strides")]
NOTHING_SAVED = [
    Allowed("dump_tensor_data", "file", "empty-skeletons", ours="<absent>"),
    Allowed("dump.json", "dump_data_dir", "empty-skeletons"),
]


def test_every_pair_is_there():
    seen = {pair for case in PAIRS.values() for pair in pairs_of(case)}
    names = list(SWITCHES)
    for index, a in enumerate(names):
        for b in names[index + 1 :]:
            wanted = {((a, x), (b, y)) for x in SWITCHES[a] for y in SWITCHES[b] if possible({a: x, b: y})}
            assert wanted <= seen, (a, b)


@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", mostly_nightly(PAIRS, *list(PAIRS)[::2]))
def test_same_dump(name, side_by_side):
    case = PAIRS[name]
    pair = side_by_side.case(name)
    disturbed = case["program"] == "one_layer_train" and case["level"] != "L1"  # "module-backward"
    found = parity.compare_rank_directories(pair.ours, pair.real, parity.Rules(rounded=disturbed, signed_zeros=False))
    by_risk = case["risk_level"] == "CORE" and case["level"] != "L0" and not case["filter"]
    allowed = [*(LINEAR_AT_CORE if by_risk else []), *(SLICED if case["slice"] else []), *NOTHING_SAVED]
    left, _ = parity.judge(found, allowed)
    assert not left, f"{case}\n{parity.summary(left)}"

"""Small nets, for construct.json and saved arrays: the same dumps under either tool."""

import nets
import parity
import pytest
from allowed import NET_ALLOWED

# mindstudio-probe drops everything after the first recomputed layer: "non-reentrant-checkpoint".
COMPARED = [name for name in nets.NAMES if name not in ("not_reentrant", "arrays")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", COMPARED)
def test_same_dump(name, side_by_side):
    training = name != "tiny"  # its rounded gradients cannot show so small norms
    pair = side_by_side.case(f"{name}_{'train' if training else 'forward'}_mix")
    rules = parity.Rules(rounded=training, signed_zeros=False)
    found = parity.compare_rank_directories(pair.ours, pair.real, rules)
    left, unused = parity.judge(found, NET_ALLOWED.get(name, []))
    assert not left, parity.summary(left)
    unused = [
        rule for rule in unused if rule.row != "module-handed-through"
    ]  # which gradient comes first is no promise
    assert not unused, f"allowed differences that were not found: {unused}"


@pytest.mark.timeout(300)
def test_a_module_that_no_gradient_reaches_ends_with_its_last_node(side_by_side):
    construct = parity.read_json(side_by_side.one("stopped_train_mix", "ours") / "construct.json")
    assert construct["Functional.linear.1.backward"] == "Module.stopped.Stopped.backward.0"
    assert construct["Module.stopped.inner.Linear.backward.0"] == "Module.stopped.Stopped.backward.0"
    for outside in ("Module.block.Block.backward.0", "Module.embedding.Embedding.backward.0"):
        assert construct[outside] is None


@pytest.mark.timeout(300)
def test_what_is_recomputed_stands_where_its_backward_does(side_by_side):
    """In the form that is not reentrant, whose dump mindstudio-probe does not finish."""
    again, plain = (
        parity.read_json(side_by_side.one(f"{name}_train_mix", "ours") / "construct.json")
        for name in ("not_reentrant", "not_checkpointed")
    )
    backward = [name for name in plain if ".backward" in name and name.startswith("Module.")]
    assert backward and {name: again[name] for name in backward} == {name: plain[name] for name in backward}
    assert again["Module.blocks.1.inner.Sequential.forward.1"] == "Module.blocks.1.Block.forward.1"
    assert not str(again["Module.blocks.1.Block.forward.1"]).startswith("Module.head.")


@pytest.mark.timeout(300)
def test_numpy_arrays_are_saved_as_tensors_are(side_by_side):
    pair = side_by_side.case("arrays_tensor_L0")
    found = parity.compare_rank_directories(pair.ours, pair.real, parity.Rules(signed_zeros=False))
    assert not found, parity.summary(found)
    data = parity.read_json(pair.ours / "dump.json")["data"]
    saved = [leaf["data_name"] for leaf in data["Module.scaled.Scaled.forward.0"]["input_args"]]
    assert len(saved) == 2


@pytest.mark.timeout(300)
def test_where_the_numbers_differ_ours_are_true(side_by_side):
    tiny = parity.read_json(side_by_side.one("tiny_forward_mix", "ours") / "dump.json")["data"]
    small = tiny["Tensor.__mul__.1.forward"]["output"][0]
    assert small["Norm"] >= max(small["Max"], -small["Min"]) > 0
    calls = parity.read_json(side_by_side.one("recursive_train_mix", "ours") / "dump.json")["data"]
    deepest = calls["Module.again.Recursive.forward.2"]["output"][0]
    assert deepest["Norm"] == calls["Tensor.__mul__.2.forward"]["output"][0]["Norm"]

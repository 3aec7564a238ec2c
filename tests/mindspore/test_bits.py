"""Losses and gradients are the same bits with the debugger on and off, in every version of MindSpore."""

import pytest
from harness.mindspore import TRAIN, entries


@pytest.mark.parametrize("net", ["transformer", "recompute"])
def test_changes_no_bit(net, run_program, plain, tmp_path):
    ran = run_program(TRAIN, net, tmp_path, "mix", "statistics", "md5")
    assert ran.digests == plain(net)
    found = entries(tmp_path)
    assert found["Cell.net.blocks.0.Block.backward.0"]["output"][0]["Norm"] > 0
    assert found["Cell.net.head.Linear.parameters_grad.0"].keys() == {"weight", "bias"}

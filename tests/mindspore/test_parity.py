"""Dumps of the same training beside mindstudio-probe's: every entry, name, number, checksum and file."""

import re

import pytest
from harness.dumps import read_dump
from harness.mindspore import TRAIN, only_rank
from harness.mindspore_parity import differences

# mindstudio-probe ties a call's arguments together, so that a gradient which the program does not ask for is computed
# and shown. Here none is, and its place is null.
UNASKED = re.compile(r"\.backward(\.\d+)?\.output\.\d+: \{.*\}, ours None$")
# It forgets the enclosing cell where that one needs no gradient of its own arguments.
FORGOTTEN = re.compile(r"^construct\.json: \S+\.backward(\.\d+)? is in None, ours in ")
# The second forward pass of a cell with recompute() runs inside the backward pass of a helper that MindSpore adds.
RECOMPUTED = re.compile(r"_WrapCell\.(forward|backward)\.1 is ")


# Where gradients are asked for, it shows the arguments of that call, as if a compiled function had got them. Ours is
# the compiled function's own backward.
ASKED = re.compile(r"Jit\.\w+\.\d+\.backward is (missing|ours alone)$")


def unexplained(theirs, ours, with_files=False):
    found = differences(theirs, ours, with_files)
    return [line for line in found if not any(each.search(line) for each in (UNASKED, FORGOTTEN, RECOMPUTED, ASKED))]


@pytest.mark.parametrize(
    ("net", "level", "task", "summary"),
    [
        ("lenet", "mix", "tensor", ""),
        ("lenet", "L1", "statistics", "statistics"),
        ("transformer", "mix", "statistics", "md5"),
        ("recompute", "mix", "statistics", "statistics"),
        ("rnn", "L0", "statistics", "md5"),
        ("data", "mix", "statistics", "md5"),
        ("jit", "L1", "statistics", "statistics"),
        ("jit", "mix", "tensor", ""),
    ],
)
def test_equals_mindstudio_probe(net, level, task, summary, run_program, run_theirs, plain, tmp_path):
    run_theirs(TRAIN, net, tmp_path / "theirs", level, task, summary)
    ran = run_program(TRAIN, net, tmp_path / "ours", level, task, summary)
    assert ran.digests == plain(net), "the debugger changed the run"
    assert len(ran.digests) == 2
    # Where a cell is compiled: what is not. On a CPU mindstudio-probe dumps none of the others.
    part = "pynative" if net == "jit" and level == "mix" else ""
    for step in (0, 1):
        theirs, ours = (only_rank(tmp_path / side / part, step) for side in ("theirs", "ours"))
        assert unexplained(theirs, ours, with_files=task == "tensor") == []


def test_equals_the_recorded_dump(run_program, run_theirs, mindspore_reference, tmp_path):
    """With the last bits of this machine's products, which are others where the CPU has AVX-512."""
    recorded = mindspore_reference / "mindspore"
    for side, run_it in (("ours", run_program), ("theirs", run_theirs)):
        run_it(recorded / "gen_mindspore.py", tmp_path / side, "statistics", "mix")
    theirs, ours = (only_rank(tmp_path / side) for side in ("theirs", "ours"))
    assert list(differences(theirs, ours)) == []
    assert read_dump(ours)["data"].keys() == read_dump(only_rank(recorded / "statistics_mix"))["data"].keys()

"""Identity, pickling, compilation and transforms hold while capturing and after stop()."""

import json
import sys

import pytest
from harness.dumps import entries, write_config
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, run

CHECKS = (
    "identity",
    "tables",
    "pickle",
    "names",
    "signature",
    "jit.script",
    "jit.trace",
    "compile eager",
    "compile aot_eager",
    "transforms",
    "torch function",
    "fake tensors",
    "partial",
)


@pytest.fixture(scope="module", params=mostly_nightly(["L1", "mix"], "mix"))
def outcome(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    dump_path, out = directory / "dump", directory / "out.json"
    config = write_config(directory / "config.json", dump_path, level=request.param)
    run([sys.executable, PROGRAMS / "undisturbed.py", "--config", config, "--out", out], timeout=240)
    return json.loads(out.read_text()), dump_path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["constructed", "capturing", "stopped"])
@pytest.mark.parametrize("check", CHECKS)
def test_holds(check, when, outcome):
    problem = outcome[0][f"{check} {when}"]
    assert problem is None, problem


@pytest.mark.timeout(300)
def test_names_bound_earlier_are_recorded(outcome):
    names = list(entries(outcome[1], 0))
    assert "Torch.relu.0.forward" in names
    assert "Functional.silu.0.forward" in names


@pytest.mark.timeout(300)
def test_printing_a_tensor_leaves_no_records(outcome):
    names = [name for name in entries(outcome[1], 0) if not name.startswith("Torch.randn")]
    assert names == ["Torch.relu.0.forward", "Functional.silu.0.forward", "Torch.max.0.forward"]


@pytest.mark.timeout(300)
def test_records_go_on_after_all_of_it(outcome):
    names = list(entries(outcome[1], 2))
    assert "Functional.linear.0.forward" in names and "Functional.linear.0.backward" in names

"""PrecisionChecker over planted faults, its runs in the store, and bisect_compile down to inductor's kernel."""

import csv
import json
import sys

import pytest
from harness.processes import PROGRAMS, REPOSITORY, find_binary, run

pytestmark = pytest.mark.timeout(300)


class Checked:
    def __init__(self, directory):
        self.directory = directory
        self.shown = run([sys.executable, PROGRAMS / "checked_compile.py", directory], timeout=280).stdout
        self.said = json.loads((directory / "said.json").read_text())

    def rows(self, name):
        with (self.directory / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def failing(self, name):
        """Modules with the checks that they fail."""
        found = {}
        for row in self.rows(name):
            if row["status"] == "FAIL" and row["module_name"] != "LOSS":
                found.setdefault(row["module_name"], set()).add(row["check_type"])
        return found


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    return Checked(tmp_path_factory.mktemp("checked"))


@pytest.mark.parametrize("name", ["clean_single", "clean_both"])
def test_a_clean_model_passes(checked, name):
    """With dropout, a cache that modules write to, keywords, and a module that is called again."""
    assert checked.said[name]["all_pass"] and checked.failing(name) == {}
    rows = checked.rows(name)
    kinds = {row["check_type"] for row in rows if row["status"] == "PASS"}
    assert kinds >= {"loss", "fwd_input", "fwd_output", "grad_input", "grad_output"}
    assert any(row["note"] == "call 1" for row in rows if row["module_name"] == "blocks.0")
    assert ("grad_parameter" in kinds) == (name == "clean_both")


def test_in_a_single_pass_the_module_that_errs_is_named_alone(checked):
    assert checked.failing("wrong_single") == {"blocks.1": {"fwd_output", "grad_input"}}
    assert not checked.said["wrong_single"]["all_pass"] and "RESULT: FAILED" in checked.shown


def test_in_two_passes_the_error_goes_on(checked):
    failing = checked.failing("wrong_both")
    assert "fwd_input" not in failing["blocks.1"] and "fwd_output" in failing["blocks.1"]
    assert {"fwd_input", "grad_parameter"} <= failing["blocks.0"], "which is called again behind it"
    notes = {row["module_name"]: row["note"] for row in checked.rows("wrong_both") if row["check_type"] == "note"}
    assert notes["blocks.2"] == notes["blocks.2.up"] == "IGNORED"
    assert notes["blocks.1.up"] == "SKIP_inside_compiled"


def test_the_tolerance_is_that_of_the_dtype(checked):
    """A thousandth is less than bfloat16 can show, and more than float32 may be off."""
    assert checked.said["small_in_half"]["all_pass"] and not checked.said["wrong_single"]["all_pass"]


def test_the_model_is_as_before(checked):
    assert all(said["untouched"] for said in checked.said.values() if "untouched" in said)


def test_both_runs_stay_in_the_store(checked):
    client, store = find_binary("msprobe-client"), checked.directory / "store"
    for name, differs in (("clean_both", 0), ("wrong_both", 1)):
        runs = checked.said[name]["runs"]
        done = run([client, "--data_dir", store, "compare", runs["compiled"], runs["eager"]], check=False)
        assert done.returncode == differs, done.stdout + done.stderr
    found = run(
        [client, "--data_dir", store, "--format", "json", "first-divergence", runs["compiled"], runs["eager"]],
        check=False,
    )
    assert "Module.blocks.1.forward.0" in found.stdout, found.stdout


def test_the_graphs_are_written(checked):
    names = sorted(path.name for path in (checked.directory / "graphs").iterdir())
    assert len(names) >= 9 and {name.split(".")[1] for name in names} == {
        "Joint_graph", "Forward_graph", "Backward_graph",
    }  # fmt: skip
    assert "torch.ops.aten" in (checked.directory / "graphs" / names[1]).read_text()


def test_under_autocast_every_module_is_compiled(checked):
    assert checked.said["cast"] == {"all_pass": True, "graphs": 4}, "one a call: each finds another cache"


def test_an_installed_check_takes_the_step_as_it_is(checked):
    """Its optimizer steps before collect(), which compares with the weights that the calls had."""
    assert checked.failing("installed") == {"blocks.2": {"fwd_output", "grad_input"}}
    assert checked.said["installed"] == {"kept": True, "compiled": 3}
    assert not any(row["check_type"] == "fwd_input" for row in checked.rows("installed"))


def test_a_model_without_wrapped_modules_is_compiled_whole(checked):
    assert checked.said["unwrapped"] == ["Net"]


def test_what_cannot_be_checked_is_refused(checked):
    backend, dtype, loss, collect, install, module, types, container = checked.said["refused"]
    assert "'inductr'" in backend and "aot_eager" in backend
    assert "'bf16'" in dtype and "torch.bfloat16" in dtype
    assert "[3, 4]" in loss and "one element" in loss
    assert "install(model) first" in collect
    assert "wrap()" in install
    assert "is a str" in module
    assert "'Linear'" in types
    assert "is a ModuleList, which is never called" in container and "wrap_all_children" in container
    assert "wrap_by_policy: Net has no module of Conv2d, so this changes nothing" in checked.shown


@pytest.fixture(scope="module")
def bisected(tmp_path_factory):
    out = tmp_path_factory.mktemp("bisected") / "out.json"
    names = ["clean", "lowering", "pass", "half", "decomposition", "changing", "raising"]
    shown = run([sys.executable, PROGRAMS / "bisected.py", out, *names], timeout=280).stdout
    return json.loads(out.read_text()) | {"shown": shown}


def calls(fault):
    return [operator["call"].partition("(")[0] for operator in fault["operators"]]


@pytest.mark.nightly
def test_a_clean_model_is_not_blamed(bisected):
    assert bisected["clean"] is None


def test_a_wrong_lowering_is_found_in_its_kernel(bisected):
    fault = bisected["lowering"]
    assert (fault["backend"], fault["subsystem"], fault["detail"]) == ("inductor", "lowerings", "tanh")
    assert fault["kernel"].startswith("cpp_fused_") and "tanh" in fault["kernel"]
    assert calls(fault) == ["tanh = aten.tanh.default", "add = aten.add.Tensor"]
    assert "return torch.tanh(self.down(h)) + x" in fault["operators"][0]["source"]
    assert 10 < fault["excess"] < 1000
    assert "tanh" in fault["said"] and fault["kernel"] in fault["said"]


def test_a_wrong_pass_is_named_with_what_it_changed(bisected):
    fault = bisected["pass"]
    assert (fault["subsystem"], fault["detail"]) == ("post_grad_passes", "post_grad_custom_post_pass")
    assert any("2.0)" in line for line in fault["removed"]) and any("2.01)" in line for line in fault["added"])
    assert "mul" in fault["kernel"] and calls(fault)[-1] == "mul_tensor = aten.mul.Tensor"


def test_a_kernel_that_rounds_less_than_eager_is_found_with_the_setting_that_cures_it(bisected):
    fault = bisected["half"]
    assert (fault["subsystem"], fault["number"]) == ("inductor_emulate_precision_casts", None)
    assert [call.split(" = ")[1] for call in calls(fault)] == [
        "aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor",
    ]  # fmt: skip


def test_a_backend_before_inductor_is_named_without_a_kernel(bisected):
    fault = bisected["decomposition"]
    assert (fault["backend"], fault["subsystem"]) == ("aot_eager_decomp_partition", "decomposition")
    assert "aten.silu" in fault["detail"] and fault["kernel"] == ""


def test_a_program_that_gives_other_results_each_time_is_refused(bisected):
    assert "output.0 differs between two eager runs" in bisected["shown"]


def test_a_backend_that_raises_is_passed_over(bisected):
    assert "aot_eager cannot be tried: " in bisected["shown"] and "ValueError: not here" in bisected["shown"]
    assert "sin" in bisected["raising"]["kernel"]
    assert (bisected["raising"]["subsystem"], bisected["raising"]["detail"]) == ("lowerings", "sin")


def test_the_documented_program_runs(tmp_path):
    text = (REPOSITORY / "docs" / "compile_check.md").read_text()
    first, second = (part.split("```")[0] for part in text.split("```python\n")[1:3])
    given = (
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))\n"
        "batch = torch.randn(3, 4)\n"
    )
    program = tmp_path / "program.py"
    program.write_text(given + first + second)
    shown = run([sys.executable, program], cwd=tmp_path, timeout=280).stdout
    assert "RESULT: ALL PASS" in shown and shown.rstrip().endswith("None")
    assert (tmp_path / "result.csv").exists()

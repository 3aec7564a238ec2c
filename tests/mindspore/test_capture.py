"""What a user of MindSpore sees of the debugger."""

import json
import zlib

import numpy
import pytest
from harness.mindspore import TRAIN, entries, only_rank


def test_a_checksum_of_bfloat16_is_that_of_float32(case):
    _, dump, _ = case("bfloat16")
    (argument,) = entries(dump)["Mint.abs.0.forward"]["input_args"]
    assert (argument["dtype"], argument["Max"], argument["Min"]) == ("BFloat16", 3.0, -2.0)
    widened = numpy.array([1, -2, 3], numpy.float32)
    assert argument["md5"] == f"{zlib.crc32(widened.tobytes()):08x}"


def test_tensors_are_files_as_mindstudio_probe_has_them(case):
    _, dump, _ = case("tensors")
    folder = only_rank(dump) / "dump_tensor_data"
    half = numpy.load(folder / "Mint.abs.0.forward.input.0.npy")
    assert half.dtype == numpy.float32 and half.tolist() == [1.5, -2, 3]
    assert numpy.load(folder / "Mint.abs.1.forward.output.0.npy").tolist() == [0, 1, 2]
    assert numpy.load(folder / "Mint.mul.0.forward.input.1.npy").dtype == numpy.bool_
    scalar, mask = entries(dump)["Mint.mul.0.forward"]["input_args"]
    assert [scalar[name] for name in ("Max", "Min", "Mean", "Norm")] == [2.0] * 4
    assert [mask[name] for name in ("Max", "Min", "Mean", "Norm")] == [True, False, None, None]


def test_numbers_are_those_of_the_call_though_memory_is_written_later(case):
    written, dump, _ = case("in_place")
    assert written == [6.0, 7.0]
    found = entries(dump)
    assert [found[f"Mint.abs.{count}.forward"]["input_args"][0]["Max"] for count in range(5)] == [2, 3, 4, 5, 6]


def test_save_writes_values_and_gradients(case):
    _, dump, output = case("saved")
    for step in (0, 1):
        found = entries(dump, step, "debug.json")
        assert found["y.0.debug"]["shape"] == [2]
        y = numpy.tanh(numpy.array([0.5, 1.0], numpy.float32))
        assert found["y_grad.0.debug"]["Max"] == pytest.approx(2 * y.max(), rel=1e-5)
        assert found["nest.0.debug"]["a"][1] == {"type": "int", "value": 3}
    assert "'wrong' is a object" in output


def test_model_train_captures_by_its_callback(case):
    _, dump, _ = case("callback")
    for step in (0, 1):
        assert any(name.endswith("first.Dense.forward.0") for name in entries(dump, step))


def test_a_training_that_goes_on_counts_from_its_step(case):
    _, dump, _ = case("init_step")
    assert list(entries(dump, 7)) == ["Mint.abs.0.forward"]


def test_custom_apis_are_recorded_and_restored(case):
    is_original, dump, _ = case("custom")
    assert is_original
    assert "mymod.double.0.forward" in entries(dump)


def test_stop_puts_everything_back(case):
    same, _, _ = case("put_back")
    assert all(same)


def test_faults_of_ours_stay_ours(case):
    said, dump, output = case("faults")
    assert said == ["TypeError", 6.0]
    assert "a call is recorded without its gradients" in output
    assert "Mint.mul.0.forward" in entries(dump)


def test_errors_of_the_program_reach_it(case):
    plain, _, _ = case("program_errors")
    assert all("Gather" in each or "GeluExt" in each for each in plain[:-1]), "each of them raises"
    captured, _, output = case("program_errors", WITH_DEBUGGER="1")
    assert captured == plain
    assert "without its gradients" not in output


def test_what_a_cell_writes_into_its_argument_reaches_the_program(case):
    (plain, captured), dump, _ = case("cell_writes")
    assert plain == captured == [9.0 + 2 * (1 + 9), [0.0, 6.0 + 2 * 2 * 3.0]]
    backward = entries(dump)["Cell.named.Named.backward.0"]
    assert backward["input"] == [None] and backward["output"][0]["Max"] == 6.0, "its result is a dict"


def test_a_change_that_mindspore_cannot_do_is_refused(case):
    _, dump, output = case("changes")
    refused = [line.partition("until it is right: ")[2] for line in output.splitlines() if "is refused, so" in line]
    assert refused == [
        "level is 'L2', which MindSpore reads when the program starts; start the program again with it",
        "task is 'overflow_check', which MindSpore reads when the program starts; start the program again with it",
        "backward is 'exact'; it is for PyTorch, leave it out for MindSpore",
    ]
    assert sorted(path.name for path in dump.glob("step*")) == ["step0", "step4"], "and what is right is taken"


def test_structure_alone(case):
    _, dump, _ = case("structure")
    assert entries(dump) == {}
    construct = json.loads((only_rank(dump) / "construct.json").read_text())
    assert construct == {
        "Cell.first.Dense.forward.0": None,
        "Cell.second.Dense.forward.0": None,
        "Cell.second.Dense.backward.0": None,
        "Cell.first.Dense.backward.0": None,
    }


def test_a_weight_that_is_thawed_has_its_gradient_from_then_on(case):
    _, dump, _ = case("thawed")
    names = [entries(dump, step)["Cell.second.Dense.parameters_grad.0"].keys() for step in (0, 1)]
    assert names == [{"bias"}, {"weight", "bias"}]


def test_filters(case):
    _, dump, _ = case("filters")
    assert [path.name for path in dump.glob("step*")] == ["step1"]
    assert list(entries(dump, 1)) == ["Functional.relu.0.forward"]


def test_a_token_range_with_xor(case):
    _, dump, _ = case("tokens")
    found = {name: entry["input_args"][0] for name, entry in entries(dump).items()}
    assert list(found) == ["Cell.first.Dense.forward.0", "Cell.first.Dense.forward.1"]
    for number, argument in zip((1, 2), found.values(), strict=True):
        words = (numpy.arange(12, dtype=numpy.float32) + number).view(numpy.uint64)
        assert argument["md5"] == f"0x{numpy.bitwise_xor.reduce(words):016x}"
        assert "Max" not in argument


def test_compiled_cells_are_recorded_whole(run_program, plain, tmp_path):
    """Where mindstudio-probe needs Ascend: what goes into the compiled cell and comes out of it."""
    ran = run_program(TRAIN, "jit", tmp_path, "mix", "statistics")
    assert ran.digests == plain("jit")
    assert "pynative/step1" in ran.output
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] not in ".c") == ["graph", "pynative"]
    for step in (0, 1):
        found = entries(tmp_path / "graph", step)
        assert found.keys() == {f"Cell.net.inner.Compiled.{direction}.0" for direction in ("forward", "backward")}
        assert found["Cell.net.inner.Compiled.forward.0"]["output"][0]["shape"] == [4, 10]
        assert found["Cell.net.inner.Compiled.backward.0"]["input"][0]["shape"] == [4, 10]
        construct = json.loads((only_rank(tmp_path / "graph", step) / "construct.json").read_text())
        assert construct["Cell.net.inner.Compiled.forward.0"] == "Cell.net.HalfCompiled.forward.0"
        assert "Cell.net.first.Dense.forward.0" in entries(tmp_path / "pynative", step)


def test_a_compiled_cell_is_a_call_at_level_l1(run_program, plain, tmp_path):
    ran = run_program(TRAIN, "jit", tmp_path, "L1", "statistics")
    assert ran.digests == plain("jit")
    for step in (0, 1):
        found = entries(tmp_path, step)
        assert found["Jit.Compiled.0.forward"]["output"][0]["shape"] == [4, 10]
        assert found["Jit.Compiled.0.backward"]["input"][0]["shape"] == [4, 10]
        assert "Functional.relu.0.forward" not in found, "what is inside is compiled"


def test_single_tensors_as_files(case):
    _, folder, _ = case("files")
    assert numpy.load(folder / "0" / "0" / "y_0.npy").tolist() == [4.0]
    assert numpy.load(folder / "0" / "0" / "y_grad_1.npy").tolist() == [1.0]
    assert sorted(path.name for path in (folder / "1" / "0").iterdir()) == ["pair.0_0.npy", "pair.1_1.npy"]


def test_needs_no_torch(case):
    has_torch, names = case("imported", WITHOUT_TORCH="1")[0]
    assert not has_torch
    assert set(names) >= {
        *("PrecisionDebugger", "seed_all", "MsprobeStep", "MsprobeInitStep", "save", "save_grad", "step"),
    }


def test_graph_mode_is_refused_with_what_works(case):
    said, _, _ = case("graph_mode")
    assert said == (
        "level is 'mix', which records calls in PyNative mode, and the program runs in GRAPH_MODE; "
        "set mindspore.set_context(mode=mindspore.PYNATIVE_MODE), or level L2, which has MindSpore dump its kernels"
    )


@pytest.mark.parametrize("task", ["nan_check", "monitor", "grad_probe"])
def test_a_task_that_graphs_do_not_have_names_pynative_alone(case, task):
    said, _, _ = case("graph_mode", TASK=task)
    assert said == (
        f"task is {task!r}, which looks at calls in PyNative mode, and the program runs in GRAPH_MODE; set "
        "mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"
    )


def test_what_is_torchs_is_refused(case):
    (*said, level, task), _, _ = case("for_torch")
    assert said == [
        "capture is 'all'; it is for PyTorch, leave it out for MindSpore",
        "model_series is ['weights']; it is for PyTorch, leave it out for MindSpore",
        "load is {'path': '/', 'modules': ['Cell.fc.Dense.forward.0']}; it is for PyTorch, leave it out for MindSpore",
    ]
    assert "['L0', 'L1', 'mix', 'debug']" in level
    assert level.endswith("MindSpore has level 'L2' as well, which has it dump its kernels.")
    assert "nan_check" in task
    assert task.endswith("MindSpore has the tasks 'exception_dump' and 'overflow_check' as well, at level 'L2'.")

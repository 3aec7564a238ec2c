"""msprobe-client check: recorded calls again in float64. A wrong kernel is found, and right ones are not."""

import functools
import json
import math
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch
from harness.processes import REPOSITORY, environment
from hypothesis import given, settings, strategies
from msprobe_client.check import arguments, distribution, replay, ties
from msprobe_client.check.operators import CallName, function_of, reason_to_skip, reference_of
from msprobe_client.model import Rank, Record, TensorStats

PROGRAM = REPOSITORY / "tests/integration/programs/checked_net.py"
GELU = "Functional.gelu.0.forward.output.0"


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """{name: dump directory}: the tensors of a right and of a wrong run, and the statistics of a right one."""
    made = {}
    for name, words in {"right": ["tensor"], "wrong": ["tensor", "wrong"], "drawn": ["statistics"]}.items():
        made[name] = tmp_path_factory.mktemp("check") / name
        subprocess.run([sys.executable, PROGRAM, made[name], *words], check=True, timeout=120, env=environment())
    return made


@pytest.fixture(scope="module")
def check(client, tmp_path_factory):
    """check(source, *words): (exit code, rows by name, file). What was asked before is not asked again."""
    scratch = tmp_path_factory.mktemp("results")

    @functools.cache
    def run(source, *words):
        file = scratch / f"{len(list(scratch.iterdir()))}.json"
        done = subprocess.run(
            [client, "check", source, *words, "--format", "json", "--output", file],
            **{"capture_output": True, "text": True, "timeout": 120, "check": False, "env": environment()},
        )
        assert file.exists(), done.stderr
        document = json.loads(file.read_text())
        return done.returncode, {row["name"]: row for row in document["rows"]}, file

    return run


def test_a_right_run_has_no_wrong_operator(check, dumps):
    code, rows, _ = check(dumps["right"])
    wrong = [row for row in rows.values() if row["verdict"] not in ("pass", "skip")]
    assert code == 0 and not wrong, wrong
    assert len(rows) > 40
    assert rows[GELU]["inputs"] == "saved"
    assert rows["Functional.linear.0.backward.input.1"]["shape"] == [64, 32]
    # A right NaN and infinity, 16 bits, integers.
    assert rows["Torch.mul.1.forward.output.0"]["accuracy"]["non_finite_same"] == 2
    assert rows["Torch.mul.0.forward.output.0"]["dtype"] == "bfloat16"
    assert rows["Torch.topk.0.forward.output.1"]["dtype"] == "int64"


def test_golden_values_of_the_next_wider_dtype(check, dumps):
    """As acc_check computes them. Of bfloat16 it is float32, which is as good as float64."""
    code, rows, _ = check(dumps["right"], "--golden", "cpu-raised", "--policy", "acc-check")
    assert code == 0 and not [row for row in rows.values() if row["verdict"] not in ("pass", "warning", "skip")]
    name = "Torch.mul.0.forward.output.0"
    _, exact, _ = check(dumps["right"])
    assert rows[name]["dtype"] == "bfloat16" and rows[name]["policy"] == "acc-check"
    assert rows[name]["accuracy"]["max_abs"] == pytest.approx(exact[name]["accuracy"]["max_abs"], rel=1e-3)
    assert "--golden cpu-raised" in rows[name]["repeat"]


def test_what_is_skipped_has_a_reason(check, dumps):
    _, rows, _ = check(dumps["right"])
    skipped = {name: row["reason"] for name, row in rows.items() if row["verdict"] == "skip"}
    assert "dropout probability is 0.1" in skipped["Functional.multi_head_attention_forward.0.forward"]
    assert all(skipped.values())


def test_a_wrong_kernel_is_found_in_what_it_computed(check, dumps):
    code, rows, _ = check(dumps["wrong"], "--device", "recorded")
    assert code == 1
    assert [name for name, row in rows.items() if row["verdict"] == "fail"] == [GELU]
    row = rows[GELU]
    assert row["rule"] == "max_abs" and row["measured"] > row["limit"]
    assert "checked_net.py" in row["stack"] and "gelu" in row["stack"]
    assert row["worst_output"] != row["worst_golden"] and len(row["worst_index"]) == 3
    assert abs(row["worst_output"] - row["worst_golden"]) == pytest.approx(row["accuracy"]["max_abs"])


def test_the_command_of_a_row_repeats_it_alone(check, dumps, client):
    _, rows, _ = check(dumps["wrong"], "--device", "recorded")
    words = rows[GELU]["repeat"]
    assert words.startswith("msprobe-client check ")
    line = words.replace("msprobe-client", str(client), 1) + " --format json"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120, check=False, env=environment())
    again = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert done.returncode == 1
    assert again[GELU]["accuracy"] == rows[GELU]["accuracy"]
    assert {name.rsplit(".", 3)[0] for name in again} == {"Functional.gelu.0"}


def test_another_policy_judges_what_was_measured(check, dumps):
    _, rows, file = check(dumps["wrong"], "--device", "recorded")
    for policy in ("default", "documented"):
        ran_code, ran, _ = check(dumps["wrong"], "--device", "recorded", "--policy", policy)
        code, again, _ = check(file, "--policy", policy)
        assert code == ran_code
        for name, row in ran.items():
            assert (again[name]["verdict"], again[name]["rule"]) == (row["verdict"], row["rule"]), (policy, name)
    assert rows[GELU]["policy"] == "default"
    for policy in ("torch", "fp64-ratio", "cann"):
        again = check(file, "--policy", policy)[1]
        assert {again[name]["policy"] for name, row in rows.items() if row["accuracy"]} == {policy}


def test_two_devices_are_held_against_each_other(check, dumps, client):
    _, _, right = check(dumps["right"], "--device", "recorded")
    _, _, wrong = check(dumps["wrong"], "--device", "recorded")
    code, rows, _ = check(wrong, "--beside", right)
    assert code == 1 and rows[GELU]["verdict"] == "fail"
    assert rows[GELU]["plain"]["max_abs"] < rows[GELU]["accuracy"]["max_abs"] / 8
    same_code, same, _ = check(wrong, "--beside", wrong, "--policy", "cann")
    assert same_code == 0 and same[GELU]["verdict"] == "pass" and same[GELU]["measured"] == 1
    done = subprocess.run(
        [client, "check", dumps["right"], "--beside", right],
        **{"capture_output": True, "text": True, "timeout": 120, "check": False, "env": environment()},
    )
    assert done.returncode == 3 and "--beside joins two results" in done.stderr


def test_statistics_alone_are_enough(check, dumps):
    code, rows, _ = check(dumps["drawn"])
    assert code == 0, [row for row in rows.values() if row["verdict"] == "fail"]
    assert rows[GELU]["inputs"] == "drawn"
    assert rows["Torch.mul.1.forward.output.0"]["accuracy"]["non_finite_same"] > 0
    _, again, _ = check(dumps["drawn"], "--name", "Functional.gelu.*")
    assert again[GELU]["accuracy"] == rows[GELU]["accuracy"]
    _, other, _ = check(dumps["drawn"], "--name", "Functional.gelu.*", "--seed", "5")
    assert other[GELU]["accuracy"] != rows[GELU]["accuracy"]


def test_another_run_may_be_golden(check, dumps):
    code, rows, _ = check(dumps["wrong"], "--device", "recorded", "--golden", dumps["right"])
    assert code == 1 and rows[GELU]["verdict"] == "fail"
    assert rows["Torch.matmul.0.forward.output.0"]["verdict"] == "pass"


def test_a_sweep_has_other_layouts_sizes_and_values(client, dumps):
    words = ["--name", "Torch.matmul.*", "--stress", "--format", "json"]
    done = subprocess.run(
        [client, "check", dumps["right"], *words],
        **{"capture_output": True, "text": True, "timeout": 120, "check": False, "env": environment()},
    )
    rows = json.loads(done.stdout)["rows"]
    assert {"strided", "special values", "no rows", "one row", "257 rows"} <= {row["variant"] for row in rows}
    assert done.returncode == 0, [row for row in rows if row["verdict"] == "fail"]


def test_wrong_words_are_refused_in_one_line(client, dumps):
    for words, said in (
        (["--device", "abacus"], "device 'abacus' cannot be used"),
        (["--policy", "lenient"], "lenient"),
        (["--golden", "nothing"], "nothing"),
        (["--ray-address", "10.0.0.1:6379"], "--ray-address 10.0.0.1:6379 is for --engine ray"),
        (["--ray-address", "10.0.0.1:6379", "--engine", "ray"], "do not reach a server of this command"),
    ):
        done = subprocess.run(
            [client, "check", dumps["right"], *words],
            **{"capture_output": True, "text": True, "timeout": 120, "check": False, "env": environment()},
        )
        assert done.returncode in (2, 3), (words, done.stderr)
        assert said in done.stderr and "Traceback" not in done.stderr


# --- parts ---


def stats(dtype="torch.float32", shape=(50,), **more):
    return TensorStats("torch.Tensor", dtype, shape, False, "cpu", **more)


@settings(max_examples=60, deadline=None)
@given(
    dtype=strategies.sampled_from(
        ["float64", "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool", "complex64"]
    ),
    shape=strategies.lists(strategies.integers(0, 7), max_size=3),
    ends=strategies.tuples(strategies.integers(-100, 100), strategies.integers(-100, 100)).map(sorted),
    planted=strategies.tuples(strategies.integers(0, 3), strategies.integers(0, 3)),
    seed=strategies.integers(0, 2**32),
)
def test_what_is_drawn_is_as_its_statistics_say(dtype, shape, ends, planted, seed):
    low, high = (0, 127) if dtype == "uint8" else (False, True) if dtype == "bool" else ends
    made = stats(f"torch.{dtype}", tuple(shape), min=low, max=high, finite_min=low, finite_max=high,
                 nan_count=planted[0], positive_inf_count=planted[1])  # fmt: skip
    first = arguments.drawn(made, torch.Generator().manual_seed(seed))
    second = arguments.drawn(made, torch.Generator().manual_seed(seed))
    assert torch.equal(first.nan_to_num(), second.nan_to_num()) if first.dtype.is_floating_point else True
    assert list(first.shape) == shape and str(first.dtype) == f"torch.{dtype}"
    if not first.dtype.is_floating_point or first.numel() < 9:
        return
    assert int(first.isnan().sum()) == planted[0] and int(first.isinf().sum()) == planted[1]
    finite = first[first.isfinite()].double()
    assert float(finite.min()) == low and float(finite.max()) == high
    if low < 0 < high:
        assert bool(((first == 0) & first.signbit()).any())


def test_names_find_their_functions():
    for full_name, function in (
        ("Functional.gelu.0.forward", torch.nn.functional.gelu),
        ("Torch.matmul.12.forward", torch.matmul),
        ("Tensor.__add__.0.backward", torch.Tensor.__add__),
        ("Aten.mm.0.forward", torch.ops.aten.mm),
    ):
        name = CallName.parse(full_name)
        assert name is not None and function_of(name) == function
    assert CallName.parse("Module.layer.Linear.forward.0") is None
    assert function_of(CallName.parse("NPU.npu_nothing.0.forward")) is None
    mutating = {
        each: CallName("Tensor", each, "forward", "").mutates
        for each in ("add_", "__iadd__", "__setitem__", "__add__", "add", "__invert__")
    }
    assert [each for each, mutates in mutating.items() if mutates] == ["add_", "__iadd__", "__setitem__"]


def test_collectives_and_unwritten_memory_are_skipped_by_name():
    for full_name, words in (
        ("Distributed.all_reduce.0.forward", "collective"),
        ("Torch.empty.0.forward", "nobody has written"),
        ("Torch.multinomial.0.forward", "random"),
    ):
        assert words in reason_to_skip(CallName.parse(full_name), [], {})
    assert reason_to_skip(CallName.parse("Torch.add.0.forward"), [], {}) is None


def test_compositions_are_golden_values_of_fused_operators():
    x = torch.randn(4, 8, dtype=torch.float64)
    rms = reference_of(CallName.parse("NPU.npu_rms_norm.0.forward"))(x, torch.ones(8, dtype=torch.float64), 1e-6)[0]
    assert torch.allclose(rms, torch.nn.functional.rms_norm(x, (8,), eps=1e-6))
    swiglu = reference_of(CallName.parse("NPU.npu_swiglu.0.forward"))(x)
    assert torch.equal(swiglu, torch.nn.functional.silu(x[:, :4]) * x[:, 4:])
    gelu = reference_of(CallName.parse("NPU.npu_fast_gelu.0.forward"))(x)
    assert torch.allclose(gelu, x * torch.sigmoid(1.702 * x))


def test_random_operators_are_held_to_their_distribution():
    torch.manual_seed(0)
    assert distribution.same_distribution(torch.rand(5000), torch.rand(5000)).holds
    assert not distribution.same_distribution(torch.rand(5000) * 0.9, torch.rand(5000)).holds
    x = torch.ones(10_000)
    assert distribution.dropped_as_often(torch.nn.functional.dropout(x, 0.3), x, 0.3).holds
    assert not distribution.dropped_as_often(torch.nn.functional.dropout(x, 0.4), x, 0.3).holds
    assert not distribution.same_distribution(torch.full((10,), math.nan), torch.rand(10)).holds


def test_indices_of_equal_elements_are_right():
    given_ = arguments.Arguments([torch.tensor([3.0, 5.0, 5.0, 1.0])], {})
    assert ties.point_to_equals("argmax", given_, torch.tensor(1), torch.tensor(2))
    assert not ties.point_to_equals("argmax", given_, torch.tensor(0), torch.tensor(2))
    assert not ties.point_to_equals("argmax", given_, torch.tensor(9), torch.tensor(2))


def test_arguments_that_are_no_tensors_come_back():
    fields = {
        "input_args": [
            {"type": "torch.dtype", "value": "torch.float16"},
            {"type": "slice", "value": [1, None, 2]},
            [2, 3],
            None,
        ],
        "input_kwargs": {"dim": -1},
        "output": [],
    }
    record = Record(
        "Torch.f.0.forward", 0, Rank("rank", 0), 0, 0, "api", "forward", True, False, False, False, fields, None
    )
    made = arguments.Loader(None, "run", 1).arguments(record)
    assert made.args == [torch.float16, slice(1, None, 2), [2, 3], None] and made.kwargs == {"dim": -1}
    lost = {**fields, "input_args": [{"type": "function", "value": "f"}]}
    broken = Record(**{**{key: getattr(record, key) for key in Record.__slots__}, "fields": lost})
    with pytest.raises(arguments.NotReplayable, match="function"):
        arguments.Loader(None, "run", 1).arguments(broken)


def test_a_backward_runs_from_the_recorded_gradients():
    x, weight = torch.randn(3, 4), torch.randn(5, 4)
    given_ = arguments.Arguments([x, weight], {})
    given_.tensors = [("input.0", x), ("input.1", weight)]
    given_.needs_grad = [True, True]
    grad = torch.randn(3, 5)
    result = replay.run(torch.nn.functional.linear, given_, mutates=False, grad_outputs=[grad], seed=1)
    assert torch.allclose(dict(result.gradients)["input.0"], grad @ weight)
    assert torch.allclose(dict(result.gradients)["input.1"], grad.T @ x)
    wrong = replay.run(torch.nn.functional.linear, given_, mutates=False, grad_outputs=[grad[:2]], seed=1)
    assert "has the shape [2, 5]" in wrong.no_backward and not wrong.gradients
    assert asdict(wrong)["outputs"]


@pytest.mark.parametrize(
    "argument",
    [
        {"type": "torch.memory_format", "value": "torch.load"},
        {"type": "slice", "value": 5},
        {"type": "complex", "value": "zz"},
        {"type": "torch.Size", "value": "abc"},
        {
            "type": "torch.Tensor",
            "dtype": "torch.float32",
            "shape": [10**12],
            "Max": 1.0,
            "Min": 0.0,
            "Mean": 0.5,
            "Norm": 1.0,
        },
    ],
)
def test_a_wrong_argument_costs_its_call_alone(argument, check, tmp_path):
    right = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2],
        "Max": 1.0,
        "Min": 0.5,
        "Mean": 0.7,
        "Norm": 1.0,
    }
    calls = {"Torch.neg.0.forward": argument, "Torch.abs.0.forward": right}
    data = {name: {"input_args": [given], "input_kwargs": {}, "output": [right]} for name, given in calls.items()}
    rows = _checked(check, tmp_path, data)
    assert rows["Torch.neg.0.forward"]["verdict"] == "skip" and rows["Torch.neg.0.forward"]["reason"]
    assert rows["Torch.abs.0.forward.output.0"]["verdict"] == "pass"


def test_calls_that_a_record_does_not_tell_apart_are_no_faults(check, tmp_path):
    matrix = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [3, 3],
        "Max": 2.0,
        "Min": -1.0,
        "Mean": 0.7,
        "Norm": 1.0,
    }
    number = [{"type": "int", "value": 0}, {"type": "int", "value": 1}]
    calls = {
        "Torch.norm.0.forward": [matrix, {"type": "int", "value": 2}],
        "Torch.svd.0.forward": [matrix],
        "Tensor.__setitem__.0.forward": [matrix, number, {"type": "float", "value": 5.0}],
        "Torch.inv.0.forward": [matrix],
    }
    data = {name: {"input_args": given, "input_kwargs": {}, "output": [matrix]} for name, given in calls.items()}
    rows = _checked(check, tmp_path, data)
    skipped = {name: row["reason"] for name, row in rows.items() if row["verdict"] == "skip"}
    assert skipped["Torch.norm.0.forward"].startswith("norm may be torch.norm or torch.linalg.norm")
    assert skipped["Torch.svd.0.forward"].startswith("svd may be torch.svd or torch.linalg.svd")
    assert skipped["Tensor.__setitem__.0.forward"].startswith("its index was a tuple or a list")
    assert rows["Torch.inv.0.forward.output.0"]["verdict"] == "pass"


def _checked(check, tmp_path, data):
    dump = tmp_path / "step0" / "rank0"
    dump.mkdir(parents=True)
    (dump / "dump.json").write_text(
        json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": data})
    )
    (dump / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
    (dump / "stack.json").write_text("{}")
    return check(tmp_path)[1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("os.system", "system is a function of os, which is no operator of torch"),
        ("Torch.os.system", "Torch.os.system is not in this environment and has no composition"),
        ("numpy.os.system", "os.system is a function of numpy, which is no operator of torch"),
        ("yaml.unsafe_load", "unsafe_load is a function of yaml, which is no operator of torch"),
    ],
)
def test_a_dump_calls_nothing_but_operators(name, says, check, tmp_path):
    seen = tmp_path / "seen"
    argument = {"type": "str", "value": f"touch {seen}"}
    call = f"{name}.0.forward"
    data = {call: {"input_args": [argument], "input_kwargs": {}, "output": [{"type": "int", "value": 0}]}}
    dump = tmp_path / "step0" / "rank0"
    dump.mkdir(parents=True)
    (dump / "dump.json").write_text(json.dumps({"task": "tensor", "level": "L1", "framework": "pytorch", "data": data}))
    (dump / "construct.json").write_text(json.dumps({call: None}))
    (dump / "stack.json").write_text("{}")
    code, rows, _ = check(tmp_path)
    assert code == 0
    (reason,) = (row["reason"] for row in rows.values())
    assert reason.startswith(says)
    assert not seen.exists()

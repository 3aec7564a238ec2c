"""Task free_benchmark: calls run a second time, what differs stands in free_benchmark.csv, and the program does not
notice."""

import csv
import json
import math

import pytest
import torch
from harness.dumps import embedded_data_directory, entries

# A process of its own: the whole way.


def rows_of(directory):
    with (directory / "free_benchmark.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_violations_are_written_and_the_program_computes_the_same_bits(traced, dump_path, ask):
    done = traced("free_benchmark.py", task="free_benchmark", section={"pert_mode": "bit_noise"})
    assert "SAME True" in done.stdout
    assert "BETTER False" in done.stdout
    assert "free_benchmark: each selected call runs a second time, with bit_noise" in done.stdout
    rows = rows_of(dump_path)
    assert list(rows[0]) == "rank pert_mode stage step api_name max_rel dtype shape output_index".split()
    (row,) = [row for row in rows if row["api_name"].startswith("Torch.log.")]
    assert float(row.pop("max_rel")) == pytest.approx(0.000596, rel=1e-3)
    assert row == {
        "rank": "",
        "pert_mode": "bit_noise",
        "stage": "forward",
        "step": "0",
        "api_name": "Torch.log.0.forward",
        "dtype": "torch.float32",
        "shape": "torch.Size([64, 64])",
        "output_index": "",
    }
    assert not [row for row in rows if "dropout" in row["api_name"]], "what draws numbers is left out"
    assert not [row for row in rows if "float" in row["api_name"].split(".")], "as casts are, at risk level FOCUS"
    directory = embedded_data_directory(dump_path)
    (run,) = ask("runs", data_dir=directory)
    records = [row for row in ask("records", run["run"], data_dir=directory) if row["name"].endswith(".forward")]
    assert records
    assert all(record["touched"] for record in records)


def test_fix_gives_the_program_the_better_result_and_records_show_it(traced, dump_path):
    section = {"pert_mode": "improve_precision", "handler_type": "fix"}
    done = traced("free_benchmark.py", task="free_benchmark", section=section)
    assert "SAME False" in done.stdout
    is_better, mean, before = done.stdout.split("BETTER ")[1].split()[:3]
    assert is_better == "True"
    recorded = entries(dump_path)["Functional.gaussian_nll_loss.0.forward"]["output"][0]["Mean"]
    assert abs(recorded - float(mean)) < abs(recorded - float(before)) / 10
    assert not (dump_path / "free_benchmark.csv").exists()


# The stage alone: a call is a function with its arguments.


class Call:
    """What the chain hands to a stage."""

    def __init__(self, name, function, *args, step=0, **kwargs):
        self.name, self.step, self.args, self.kwargs = name, step, args, kwargs
        self.runs = []
        self._function = function

    def __call__(self, *args, **kwargs):
        self.runs.append(args)
        return self._function(*args, **kwargs)


@pytest.fixture
def judged(tmp_path):
    """judged(function, *args, name=..., steps=1, mode fields) -> rows; judged.result: what the last call gave."""

    def call(function, *args, name="Torch.log.0.forward", steps=1, **asked):
        from msprobe import _agent
        from msprobe.pytorch.free_benchmark.stage import FreeBenchmark

        text = {"task": "free_benchmark", "dump_path": str(tmp_path), "free_benchmark": {"list": ["o"], **asked}}
        config = _agent.parse_config(json.dumps(text), task=None, dump_path=None, level=None, step=None)
        stage = FreeBenchmark(config, lambda: 3)
        for step in range(steps):
            call.result = stage(Call(name, function, *args, step=step))
        return call.rows()

    def rows():
        """Those that nobody has asked for."""
        path = tmp_path / "free_benchmark.csv"
        found = rows_of(tmp_path)[len(told) :] if path.exists() else []
        told.extend(found)
        return found

    told = []
    call.rows = rows
    return call


def shares(rows):
    return [float(row["max_rel"]) for row in rows]


def test_a_large_tensor_is_judged_by_all_of_it(judged):
    """Its bad numbers come first, and more than a piece of good ones behind them."""
    values = torch.full((5 << 20,), 2.0)
    values[:64] = 1.0003
    (share,) = shares(judged(torch.log, values, pert_mode="bit_noise"))
    assert share > 3e-4


def test_small_numbers_are_judged_by_their_own_size(judged):
    """Below 1e-4, under which the old tool looked at no float32."""
    near = torch.linspace(1.0002, 1.0004, 64)
    assert judged(lambda x: torch.log(x) * 1e-3, near, pert_mode="bit_noise")


def test_a_nan_on_one_side_is_a_difference(judged):
    def edge(x):
        return torch.where(x == 1, x, torch.nan)

    (row,) = judged(edge, torch.ones(4), pert_mode="bit_noise")
    assert math.isnan(float(row["max_rel"]))
    (row,) = judged(lambda x: torch.where(x == 1, 0.0, torch.inf), torch.ones(4), pert_mode="bit_noise")
    assert math.isinf(float(row["max_rel"]))


def test_nan_and_inf_on_both_sides_are_none(judged):
    values = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.5])
    assert judged(torch.relu, values, pert_mode="bit_noise") == []


def test_each_input_is_perturbed_by_itself(judged):
    """The first is not what the result hangs on; and both at once would move alike."""
    near = torch.linspace(1.0002, 1.0004, 64)
    assert judged(lambda x, y: x + torch.log(y) * 1e6, torch.ones(64), near, pert_mode="bit_noise")
    assert judged(torch.sub, near, near + 1e-5, pert_mode="bit_noise")


def test_another_sign_is_named(judged):
    rows = judged(lambda x: torch.where(x == 1, x, -x), torch.ones(4), pert_mode="bit_noise")
    assert [row["rank"] for row in rows] == ["3"]
    assert rows[0]["max_rel"] == "symbol_flipping"


def test_modes_differ_in_what_they_change(judged):
    values = torch.tensor([1.0, 2.0, 4.0])
    assert shares(judged(torch.clone, values, pert_mode="change_value")) == [3.0]
    assert judged(torch.clone, values, pert_mode="no_change") == []
    narrow = torch.full((300,), 0.1).bfloat16()

    def summed(x):  # in the dtype of what it is given
        total = x[0] * 0
        for each in x:
            total = total + each
        return total

    assert judged(summed, narrow, pert_mode="improve_precision")
    assert judged(summed, narrow, pert_mode="to_cpu", fuzz_device="cpu")


def test_no_change_takes_no_difference_at_all(judged):
    turns = iter([torch.tensor([1.0, 1e-9]), torch.tensor([1.0, 1.0000002e-9])])
    assert judged(lambda x: x * next(turns), torch.ones(2), pert_mode="no_change")


def test_what_draws_numbers_is_left_out_and_draws_the_same(judged):
    torch.manual_seed(5)
    expected = torch.nn.functional.dropout(torch.ones(64))
    torch.manual_seed(5)
    assert judged(torch.nn.functional.dropout, torch.ones(64), pert_mode="no_change") == []
    assert torch.equal(judged.result, expected)


def test_a_call_that_changes_its_argument_changes_it_once(judged):
    value = torch.ones(4)
    judged(torch.Tensor.add_, value, 1, name="Tensor.add_.0.forward", pert_mode="add_noise")
    assert value.tolist() == [2.0] * 4
    assert judged.result is value


def test_an_error_of_the_second_run_stays_here_and_the_programs_own_goes_on(judged, capfd):
    seen = []

    def once(x):
        seen.append(x)
        if len(seen) == 1:
            raise ValueError("not twice")
        return x

    assert judged(once, torch.ones(4), pert_mode="no_change") == []
    assert "Torch.log.0.forward was not compared: ValueError: not twice" in capfd.readouterr().out
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        judged(torch.matmul, torch.ones(2, 3), torch.ones(2, 3), pert_mode="bit_noise")


def test_fix_keeps_autograd_and_the_tensor(judged):
    x = torch.linspace(-3, 3, 64).bfloat16().requires_grad_()
    assert judged(torch.sigmoid, x * 1.01, pert_mode="improve_precision", handler_type="fix") == []
    assert judged.result.grad_fn is not None
    judged.result.sum().backward()
    assert x.grad.isfinite().all()


def test_gradients_are_computed_again_with_others_coming_in(judged):
    x = torch.linspace(1, 2, 64).requires_grad_()
    assert judged(torch.log, x, pert_mode="change_value", fuzz_stage="backward") == []
    (judged.result * torch.linspace(1, 3, 64)).sum().backward()
    expected = torch.linspace(1, 3, 64) / torch.linspace(1, 2, 64)
    assert torch.allclose(x.grad, expected)
    (row,) = judged.rows()
    assert (row["stage"], row["api_name"]) == ("backward", "Torch.log.0.backward")
    assert float(row["max_rel"]) == pytest.approx(2.0)


def test_gradients_are_computed_again_with_other_arguments(judged):
    """Of exp they hang on these alone, where what comes in is the same everywhere."""
    x = torch.linspace(0, 1, 64).requires_grad_()
    assert judged(torch.exp, x, name="Torch.exp.0.forward", pert_mode="change_value", fuzz_stage="backward") == []
    judged.result.sum().backward()
    (row,) = judged.rows()
    assert float(row["max_rel"]) == pytest.approx(math.e - 1)


def test_a_shared_inputs_gradient_is_judged_call_by_call(judged):
    """Another user of it adds a thousand times what this call does."""
    x = torch.linspace(1, 2, 64).requires_grad_()
    assert judged(torch.mul, x, 3.0, name="Torch.mul.0.forward", pert_mode="no_change", fuzz_stage="backward") == []
    (judged.result + x * 3000).sum().backward()
    assert judged.rows() == []


def test_a_limit_is_found_between_what_the_cpu_agrees_with_and_what_not():
    from msprobe._common.free_benchmark.preheat import Preheat

    preheat, dtype = Preheat(steps=4, max_sample=20), torch.float32
    sampled = [[preheat.begin("Torch.log", step) for _ in range(8)] for step in range(6)]
    assert [sum(step) for step in sampled] == [0, 2, 2, 2, 0, 0]
    assert len({tuple(step) for step in sampled[1:4]}) == 3, "others in each step"
    preheat = Preheat(steps=4, max_sample=20)
    limits = []
    for step in range(4):
        for _ in range(2):
            preheat.begin("Torch.log", step)
        if step == 1:
            preheat.note("Torch.log", dtype, 1.5, agrees=True, least=1.0002)
        if step == 2:
            preheat.note("Torch.log", dtype, 1.1, agrees=True, least=1.0002)
            preheat.note("Torch.log", dtype, 1.3, agrees=False, least=1.0002)
        limits.append(preheat.limit("Torch.log", dtype))
    assert limits == pytest.approx([2.05, 2.05, 1.525, 1.2])


def test_preheat_spares_what_the_cpu_agrees_with(judged):
    near = torch.linspace(1.0002, 1.0004, 64)
    assert judged(torch.log, near, pert_mode="bit_noise", steps=2)
    assert judged(torch.log, near, pert_mode="bit_noise", steps=3, if_preheat=True, preheat_step=5) == []


def test_samples_are_twenty_where_nobody_says(tmp_path):
    from msprobe import _agent

    text = json.dumps({"task": "free_benchmark", "dump_path": str(tmp_path), "free_benchmark": {"if_preheat": True}})
    config = _agent.parse_config(text, task=None, dump_path=None, level=None, step=None)
    assert (config.preheat_step, config.max_sample, config.pert_mode) == (15, 20, "improve_precision")


def test_the_agent_and_the_client_perturb_alike():
    from msprobe.pytorch.free_benchmark import perturbing as inside
    from msprobe_client.sensitivity import perturbing as beside

    assert inside.NOISE == beside._NOISE
    assert set(inside.CHANGES) <= set(beside.CHANGES)
    assert set(inside.PLACES) == set(beside.REPETITIONS)
    for dtype in inside.NOISE:
        values = torch.tensor([3.0, -1.5, 1e-5, 0.0, 250.0, 7.0]).to(dtype)
        for mode, change in inside.CHANGES.items():
            theirs = beside.CHANGES[mode](values, 0.0, torch.Generator())
            assert torch.equal(change(values), theirs.to(dtype)), (mode, dtype)

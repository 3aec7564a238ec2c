"""Faults planted into one side of a small network, and what first-divergence and the verdicts must say of them."""

import json
import os
import pathlib
import sys
import zlib
from collections import Counter

import numpy
import pytest

TASKS = ("statistics", "md5", "tensor")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    binary = os.environ.get("MSPROBE_SERVER_BINARY", str(pathlib.Path(sys.executable).parent / "msprobe-server"))
    if not os.access(binary, os.X_OK):
        pytest.skip(f"no msprobe-server at {binary}: run `make build` or set MSPROBE_SERVER_BINARY")
    from msprobe_client import Client

    with Client(data_dir=tmp_path_factory.mktemp("faults") / "store", create=True) as made:
        yield made


class Network:
    """Three linear layers and a sum, forward and backward, recorded as a mix dump. `fault` changes one thing."""

    def __init__(self, fault="", seed=3, ranks_sum=None):
        self.fault = fault
        self.counts = Counter()
        self.data = {}
        self.construct = {}
        self.tensors = {}
        self.ranks_sum = ranks_sum
        draw = numpy.random.default_rng(seed)
        self.weights = [draw.standard_normal((6, 6)).astype(numpy.float32) for _ in range(3)]
        self.x = draw.standard_normal((4, 6)).astype(numpy.float32)
        if fault == "weight":
            self.weights[1][:, 3] += 0.25
        if fault == "nan in weight":
            self.weights[1][2, 3] = numpy.nan
        if fault == "inf in weight":
            self.weights[1][2, 3] = numpy.inf
        if fault == "input":
            self.x[1, 1] += 0.25
        self.run()

    def record(self, kind, direction, inputs, outputs, parent=None):
        number = self.counts[kind, direction]
        self.counts[kind, direction] += 1
        name = f"{kind}.{number}.{direction}"
        keys = ("input_args", "output") if direction == "forward" else ("input", "output")
        self.data[name] = {
            key: [
                self.leaf(f"{name}.{'output' if key == 'output' else 'input'}.{i}", item)
                for i, item in enumerate(items)
            ]
            for key, items in zip(keys, (inputs, outputs), strict=True)
        }
        self.construct[name] = parent
        return name

    def leaf(self, name, value):
        if not isinstance(value, numpy.ndarray):
            return {"type": type(value).__name__, "value": value}
        self.tensors[f"{name}.npy"] = value
        floating = value.dtype.kind == "f"
        with numpy.errstate(all="ignore"):
            moments = [float(value.mean()), float(numpy.linalg.norm(value))] if floating else [None, None]
        return {
            "type": "torch.Tensor",
            "dtype": f"torch.{value.dtype}",
            "shape": list(value.shape),
            "Max": value.max().item(),
            "Min": value.min().item(),
            "Mean": moments[0],
            "Norm": moments[1],
            "requires_grad": value.ndim == 2 and value.shape == (6, 6),
            "md5": f"{zlib.crc32(numpy.ascontiguousarray(value).tobytes()):08x}",
            "data_name": f"{name}.npy",
        }

    def run(self):
        x = self.x
        kept = []
        for layer, weight in enumerate(self.weights):
            module = f"Module.layers.{layer}.Block.forward.0"
            if self.fault == "one call more" and layer == 1:
                self.record("Functional.linear", "forward", [x, self.weights[0]], [x @ self.weights[0]])
            with numpy.errstate(all="ignore"):
                y = x @ weight
            if self.fault == "computation" and layer == 1:
                y = y + numpy.float32(0.01)
            if self.fault == "dtype" and layer == 1:
                y = y.astype(numpy.float16)
            self.record("Functional.linear", "forward", [x, weight], [y], module)
            y = y.astype(numpy.float32)
            z = numpy.maximum(y, 0)
            for fault, value in (("nan", numpy.nan), ("inf", numpy.inf), ("minus inf", -numpy.inf)):
                if self.fault == f"{fault} in activation" and layer == 1:
                    z[0, 0] = value
            if not (self.fault == "one operation less" and layer == 1):
                slope = 0.5 if self.fault == "argument" and layer == 1 else 0.0
                self.record("Functional.relu", "forward", [y, slope], [z], module)
            self.data[module] = {
                "input_args": [self.leaf(f"{module}.input.0", x)],
                "output": [self.leaf(f"{module}.output.0", z)],
                "parameters": {"weight": self.leaf(f"{module}.parameters.weight", weight)},
            }
            self.construct[module] = None
            kept.append((x, y))
            x = z
        if self.ranks_sum is not None:
            reduced = x + self.ranks_sum
            self.record("Distributed.all_reduce", "forward", [x], [reduced])
            x = reduced
        index = numpy.array([2**53 + (self.fault == "2**53+1"), 7], dtype=numpy.int64)
        self.record("Tensor.sum", "forward", [x], [numpy.array([x.sum()], dtype=numpy.float32)])
        self.record("Torch.arange", "forward", [2], [index])
        gradient = numpy.ones_like(x)
        for layer in reversed(range(3)):
            given, y = kept[layer]
            passed = gradient * (y > 0)
            self.record("Functional.relu", "backward", [gradient], [passed])
            with numpy.errstate(all="ignore"):
                gradient = passed @ self.weights[layer].T
            if self.fault == "nan in gradient" and layer == 1:
                gradient[0, 0] = numpy.nan
            self.record("Functional.linear", "backward", [passed], [gradient])
            name = f"Module.layers.{layer}.Block.parameters_grad.0"
            with numpy.errstate(all="ignore"):
                self.data[name] = {"weight": [self.leaf(f"{name}.weight", given.T @ passed)]}

    def write(self, directory, task):
        directory.mkdir(parents=True)
        strip = {"statistics": ("md5", "data_name"), "md5": ("data_name",), "tensor": ("md5",)}[task]

        def clean(value):
            if isinstance(value, dict):
                return {key: clean(item) for key, item in value.items() if key not in strip}
            return [clean(item) for item in value] if isinstance(value, list) else value

        kind = "tensor" if task == "tensor" else "statistics"
        document = {"task": kind, "level": "mix", "framework": "pytorch", "data": clean(self.data)}
        (directory / "dump.json").write_text(json.dumps(document))
        (directory / "construct.json").write_text(json.dumps(self.construct))
        (directory / "stack.json").write_text(
            json.dumps({"0": [list(self.data), ["File /model.py, line 7, in f, \n f()"]]})
        )
        if task == "tensor":
            (directory / "dump_tensor_data").mkdir()
            for name, value in self.tensors.items():
                numpy.save(directory / "dump_tensor_data" / name, value)


# fault of the target: (operation, blame), and the verdict of the row that is blamed.
FAULTS = {
    "weight": ("Functional.linear.1.forward", "weight", "differs"),
    "nan in weight": ("Functional.linear.1.forward", "weight", "non-finite"),
    "inf in weight": ("Functional.linear.1.forward", "weight", "non-finite"),
    "input": ("Functional.linear.0.forward", "input", "differs"),
    "computation": ("Functional.linear.1.forward", "computation", "differs"),
    "nan in activation": ("Functional.relu.1.forward", "computation", "non-finite"),
    "inf in activation": ("Functional.relu.1.forward", "computation", "non-finite"),
    "nan in gradient": ("Functional.linear.1.backward", "computation", "non-finite"),
    "dtype": ("Functional.linear.1.forward", "computation", None),
    "argument": ("Functional.relu.1.forward", "argument", "scalar"),
    "one call more": ("Functional.linear.1.forward", "missing", None),
    "one operation less": ("Functional.relu.1.forward", "missing", None),
    "2**53+1": ("Torch.arange.0.forward", "computation", "differs"),
}


def diverged(client, target, golden, **options):
    return [item for item in client.first_divergence(target, golden, **options) if item.first]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_found_and_blamed(client, tmp_path, fault, task):
    op, blame, verdict = FAULTS[fault]
    Network(fault).write(tmp_path / "target", task)
    Network().write(tmp_path / "golden", task)
    (found,) = diverged(client, tmp_path / "target", tmp_path / "golden")
    if fault == "dtype":
        # The rounded output is the next operation's input; the dtypes themselves may be compared.
        assert found.op in (op, "Functional.relu.1.forward")
        return
    assert (found.op, found.blame) == (op, blame)
    assert found.stack == ("File /model.py, line 7, in f, \n f()",)
    if verdict is not None:
        assert {row.verdict for row in found.evidence if row.name == found.culprit} == {verdict}
    if op.startswith("Functional.linear.1.f") and blame != "missing":
        assert found.module == "layers.1"


@pytest.mark.parametrize("task", TASKS)
def test_equal_runs_are_silent(client, tmp_path, task):
    for side in ("target", "golden"):
        Network("nan in activation").write(tmp_path / side, task)
    assert list(client.first_divergence(tmp_path / "target", tmp_path / "golden")) == []


@pytest.mark.parametrize("task", TASKS)
def test_the_sign_of_infinity_is_a_difference(client, tmp_path, task):
    Network("inf in activation").write(tmp_path / "target", task)
    Network("minus inf in activation").write(tmp_path / "golden", task)
    (found,) = diverged(client, tmp_path / "target", tmp_path / "golden")
    assert (found.op, found.blame) == ("Functional.relu.1.forward", "computation")


def test_a_call_that_the_golden_side_lacks_does_not_shift_the_rest(client, tmp_path):
    Network("one call more").write(tmp_path / "target", "statistics")
    Network().write(tmp_path / "golden", "statistics")
    (found,) = diverged(client, tmp_path / "target", tmp_path / "golden")
    assert found.in_target
    assert diverged(client, tmp_path / "target", tmp_path / "golden", ignore_missing=True) == []
    (found,) = diverged(client, tmp_path / "golden", tmp_path / "target")
    assert not found.in_target


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_damaged_content_is_blamed_on_itself(client, tmp_path, damage):
    for side in ("target", "golden"):
        Network().write(tmp_path / side, "tensor")
    file = tmp_path / "target" / "dump_tensor_data" / "Functional.linear.1.forward.output.0.npy"
    if damage == "deleted":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-8])
    (found,) = diverged(client, tmp_path / "target", tmp_path / "golden")
    assert (found.op, found.blame) == ("Functional.linear.1.forward", "unreadable")


def test_the_first_step_and_the_rank_that_began_are_found(client, tmp_path):
    """Step 1 of rank 1 has another weight, and gives it to rank 0 by an all_reduce."""
    for step in (0, 1, 2):
        faulty = "weight" if step >= 1 else ""
        for side in ("target", "golden"):
            fault = faulty if side == "target" else ""
            outputs = [Network(rank_fault, seed=step * 10 + rank) for rank, rank_fault in ((0, ""), (1, fault))]
            sums = [network.data["Module.layers.2.Block.forward.0"]["output"][0] for network in outputs]
            values = [network.tensors[leaf["data_name"]] for network, leaf in zip(outputs, sums, strict=True)]
            for rank, rank_fault in ((0, ""), (1, fault)):
                network = Network(rank_fault, seed=step * 10 + rank, ranks_sum=values[1 - rank])
                network.write(tmp_path / side / f"step{step}" / f"rank{rank}", "statistics")
    found = list(client.first_divergence(tmp_path / "target", tmp_path / "golden"))
    assert {item.step for item in found} == {1}
    first = found[-1]
    assert first.first and (str(first.rank), first.op, first.blame) == (
        "rank1",
        "Functional.linear.1.forward",
        "weight",
    )
    (other,) = [item for item in found if str(item.rank) == "rank0"]
    assert (other.op, other.blame) == ("Distributed.all_reduce.0.forward", "communication")


ORIGINS = {
    "nan in weight": ("Functional.linear.1.forward", "weight"),
    "inf in weight": ("Functional.linear.1.forward", "weight"),
    "nan in activation": ("Functional.relu.1.forward", "computation"),
    "inf in activation": ("Functional.relu.1.forward", "computation"),
    "nan in gradient": ("Functional.linear.1.backward", "computation"),
}


@pytest.mark.parametrize("task", ["statistics", "md5"])
@pytest.mark.parametrize("fault", ORIGINS)
def test_the_origin_of_what_is_not_finite_is_found(client, tmp_path, fault, task):
    Network(fault).write(tmp_path / "dump", task)
    found = list(client.overflow(tmp_path / "dump"))
    assert (found[-1].op, found[-1].origin) == ORIGINS[fault] and found[-1].first
    assert found[-1].nan == fault.startswith("nan")


@pytest.mark.parametrize("fault", ["", "weight", "computation"])
def test_finite_runs_raise_no_alarm(client, tmp_path, fault):
    Network(fault).write(tmp_path / "dump", "statistics")
    assert list(client.overflow(tmp_path / "dump")) == []

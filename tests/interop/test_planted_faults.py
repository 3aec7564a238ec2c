"""Faults planted into one side of a small network: first-divergence and the verdicts must find them."""

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
            passed = numpy.where(y > 0, gradient, numpy.float32(0))
            self.record("Functional.relu", "backward", [gradient], [passed])
            with numpy.errstate(all="ignore"):
                gradient = passed @ self.weights[layer].T
            if self.fault in ("nan in gradient", "inf in gradient") and layer == 1:
                gradient[0, 0] = float(self.fault[:3])
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


# fault of the target: (operation, blame), and the verdict of the blamed row.
FAULTS = {
    "weight": ("Functional.linear.1.forward", "weight", "differs"),
    "nan in weight": ("Functional.linear.1.forward", "weight", "non-finite"),
    "inf in weight": ("Functional.linear.1.forward", "weight", "non-finite"),
    "input": ("Functional.linear.0.forward", "input", "differs"),
    "computation": ("Functional.linear.1.forward", "computation", "differs"),
    "nan in activation": ("Functional.relu.1.forward", "computation", "non-finite"),
    "inf in activation": ("Functional.relu.1.forward", "computation", "non-finite"),
    "nan in gradient": ("Functional.linear.1.backward", "computation", "non-finite"),
    "inf in gradient": ("Functional.linear.1.backward", "computation", "non-finite"),
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
def test_an_operation_that_the_target_has_and_the_golden_side_lacks_is_found(client, tmp_path, task):
    Network().write(tmp_path / "target", task)
    Network("one operation less").write(tmp_path / "golden", task)
    (found,) = diverged(client, tmp_path / "target", tmp_path / "golden")
    assert (found.op, found.blame, found.in_target) == ("Functional.relu.1.forward", "missing", True)


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


def as_torch_files(directory):
    """The .npy of a dump as .pt, which is what torch programs leave."""
    torch = pytest.importorskip("torch")
    for file in (directory / "dump_tensor_data").glob("*.npy"):
        torch.save(torch.from_numpy(numpy.load(file)), file.with_suffix(".pt"))
        file.unlink()
    dump = directory / "dump.json"
    dump.write_text(dump.read_text().replace('.npy"', '.pt"'))


@pytest.mark.parametrize("suffix", ["npy", "pt"])
@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_damaged_content_is_blamed_on_itself(client, tmp_path, damage, suffix):
    for side in ("target", "golden"):
        Network().write(tmp_path / side, "tensor")
        if suffix == "pt":
            as_torch_files(tmp_path / side)
    file = tmp_path / "target" / "dump_tensor_data" / f"Functional.linear.1.forward.output.0.{suffix}"
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


def passed_on(wrong_on=None, batched=False):
    """Ranks 0, 1, 2 in a pipeline: each adds, then gives its sum to the next. name -> entries, by rank."""
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 3], "group_id": "1"}
    value = 1.0
    ranks = {}
    for rank in (0, 1, 2):
        entries = {}
        if rank == 0:
            for call in range(3):  # it has talked to others more often than those behind it ever do
                entries[f"Distributed.all_reduce.{call}.forward"] = ([number(2.0)], [number(2.0)], {"group": group})
        if rank > 0:
            empty = number(0.0)
            if batched:
                name = "Distributed.batch_isend_irecv.0.forward"
                entries[name] = ([[message("irecv", rank - 1, empty)]], [number(value)], {})
            else:
                peer = {"type": "int", "value": rank - 1}
                entries["Distributed.recv.0.forward"] = ([number(value), peer], [number(value)], {})
        before = value
        value = value + 1.0 + (0.5 if rank == wrong_on else 0.0)
        entries["Torch.add.0.forward"] = ([number(before)], [number(value)], {})
        peer = {"type": "int", "value": rank + 1}
        entries["Distributed.send.0.forward"] = ([number(value), peer], [], {})
        ranks[rank] = {
            name: {"input_args": given, "input_kwargs": keywords, "output": made}
            for name, (given, made, keywords) in entries.items()
        }
    return ranks


def number(value):
    numbers = dict.fromkeys(("Max", "Min", "Mean", "Norm"), value)
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "requires_grad": False, **numbers}


def message(op, peer, tensor):
    kind = "torch.distributed.P2POp"
    return {"class_type": kind, "tensor": tensor, "op": op, "peer": peer, "tag": 0, "group_id": "1"}


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("wrong_on", [0, 1, 2])
def test_the_rank_that_began_is_found_through_sends_and_receives(client, tmp_path, wrong_on, batched, stored):
    for side, fault in (("target", wrong_on), ("golden", None)):
        for rank, data in passed_on(fault, batched).items():
            directory = tmp_path / side / "step0" / f"rank{rank}"
            directory.mkdir(parents=True)
            document = {"task": "statistics", "level": "L1", "framework": "pytorch", "data": data}
            (directory / "dump.json").write_text(json.dumps(document))
    sides = [tmp_path / side for side in ("target", "golden")]
    if stored:
        for side in sides:
            client.import_dump(side, f"{tmp_path.name}-{side.name}")
        sides = [f"run:{tmp_path.name}-{side.name}" for side in sides]
    found = list(client.first_divergence(*sides))
    first = found[-1]
    assert first.first and (str(first.rank), first.op, first.blame) == (
        f"rank{wrong_on}",
        "Torch.add.0.forward",
        "computation",
    )
    others = {str(item.rank): item.blame for item in found[:-1] if item.rank != first.rank}
    assert others == {f"rank{rank}": "communication" for rank in range(wrong_on + 1, 3)}


ORIGINS = {
    "nan in weight": ("Functional.linear.1.forward", "weight"),
    "inf in weight": ("Functional.linear.1.forward", "weight"),
    "nan in activation": ("Functional.relu.1.forward", "computation"),
    "inf in activation": ("Functional.relu.1.forward", "computation"),
    "nan in gradient": ("Functional.linear.1.backward", "computation"),
    "inf in gradient": ("Functional.linear.1.backward", "computation"),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fault", ORIGINS)
def test_the_origin_of_what_is_not_finite_is_found(client, tmp_path, fault, task):
    Network(fault).write(tmp_path / "dump", task)
    found = list(client.overflow(tmp_path / "dump"))
    assert {item.op for item in found} == {ORIGINS[fault][0]}, "gradients and what follows are told apart"
    assert (found[-1].op, found[-1].origin) == ORIGINS[fault] and found[-1].first
    assert found[-1].nan == fault.startswith("nan")


@pytest.mark.parametrize("fault", ["", "weight", "computation"])
@pytest.mark.parametrize("task", TASKS)
def test_finite_runs_raise_no_alarm(client, tmp_path, fault, task):
    Network(fault).write(tmp_path / "dump", task)
    assert list(client.overflow(tmp_path / "dump")) == []


def leaf(max_value, min_value, grad=False):
    numbers = {"Max": max_value, "Min": min_value, "Mean": min_value, "Norm": float("inf")}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4], "requires_grad": grad, **numbers}


def test_masks_and_memory_that_nobody_set_raise_no_alarm(client, tmp_path):
    """Operations of attention in every transformer, and buffers before they are filled."""
    lowest, infinity = -3.4028234663852886e38, float("inf")
    fill = {"type": "float", "value": -infinity}
    data = {
        "Torch.full.0.forward": ([{"type": "float", "value": lowest}], [leaf(lowest, lowest)]),
        "Torch.triu.0.forward": ([leaf(lowest, lowest)], [leaf(0.0, lowest)]),
        "Tensor.__add__.0.forward": ([leaf(3.0, -3.0), leaf(0.0, lowest)], [leaf(3.0, lowest)]),
        "Tensor.masked_fill.0.forward": ([leaf(3.0, -3.0), fill], [leaf(3.0, -infinity)]),
        "Functional.softmax.0.forward": ([leaf(3.0, -infinity)], [leaf(1.0, 0.0)]),
        "Torch.empty.0.forward": ([], [leaf(float("nan"), float("nan"))]),
        "Distributed.recv.0.forward": ([leaf(float("nan"), float("nan"))], [leaf(2.0, -2.0)]),
        "Torch.relu.0.forward": ([leaf(2.0, -2.0)], [leaf(2.0, 0.0)]),
    }
    entries = {name: {"input_args": given, "output": made} for name, (given, made) in data.items()}
    (tmp_path / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": entries}))
    assert list(client.overflow(tmp_path / "dump.json")) == []


def write_ranks(root, fault_of, steps=(0, 1, 2), ranks=(0, 1), task="statistics"):
    for step in steps:
        for rank in ranks:
            directory = root / f"step{step}" / f"rank{rank}"
            Network(fault_of(step, rank), seed=step * 10 + rank).write(directory, task)


def test_the_step_and_rank_of_the_first_overflow_are_found(client, tmp_path):
    write_ranks(tmp_path, lambda step, rank: "nan in activation" if (step, rank) in {(1, 1), (2, 0)} else "")
    found = list(client.overflow(tmp_path))
    assert {(item.step, str(item.rank)) for item in found} == {(1, "rank1"), (2, "rank0")}
    assert found[-1].first and (found[-1].step, str(found[-1].rank)) == (1, "rank1")


# fault of the target: its row, and the verdict.
VERDICTS = {
    "weight": ("Functional.linear.1.forward.input.1", "differs"),
    "nan in weight": ("Functional.linear.1.forward.input.1", "non-finite"),
    "inf in weight": ("Functional.linear.1.forward.input.1", "non-finite"),
    "input": ("Functional.linear.0.forward.input.0", "differs"),
    "computation": ("Functional.linear.1.forward.output.0", "differs"),
    "nan in activation": ("Functional.relu.1.forward.output.0", "non-finite"),
    "inf in activation": ("Functional.relu.1.forward.output.0", "non-finite"),
    "nan in gradient": ("Functional.linear.1.backward.output.0", "non-finite"),
    "inf in gradient": ("Functional.linear.1.backward.output.0", "non-finite"),
    "argument": ("Functional.relu.1.forward.input.1", "scalar"),
    "one call more": ("Functional.linear.3.forward.output.0", "target only"),
    "one operation less": ("Functional.relu.2.forward.output.0", "golden only"),
    "2**53+1": ("Torch.arange.0.forward.output.0", "differs"),
}


def compared(client, target, golden, **options):
    return [row for row in client.compare(target, golden, **options) if hasattr(row, "verdict")]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fault", VERDICTS)
def test_the_verdict_of_the_row_that_carries_the_fault(client, tmp_path, fault, task):
    name, verdict = VERDICTS[fault]
    Network(fault).write(tmp_path / "target", task)
    Network().write(tmp_path / "golden", task)
    rows = {row.name: row.verdict for row in compared(client, tmp_path / "target", tmp_path / "golden", rows="all")}
    assert rows[name] == verdict
    everything = compared(client, tmp_path / "target", tmp_path / "golden", rows="all", order="execution")
    before = [row.name for row in everything]
    before = before[: before.index(name)] if fault not in ("one call more", "one operation less") else []
    assert {rows[each] for each in before} <= {"equal"}


@pytest.mark.parametrize("task", TASKS)
def test_another_dtype_is_told_or_compared_with_its_tolerance(client, tmp_path, task):
    Network("dtype").write(tmp_path / "target", task)
    Network().write(tmp_path / "golden", task)
    rows = {row.name: row for row in compared(client, tmp_path / "target", tmp_path / "golden", rows="all")}
    found = rows["Functional.linear.1.forward.output.0"]
    assert (found.target_dtype, found.golden_dtype) == ("torch.float16", "torch.float32")
    assert found.verdict == "within"  # of float16
    assert rows["Functional.relu.1.forward.output.0"].is_difference  # of float32, by 1e-3


@pytest.mark.parametrize("task", TASKS)
def test_the_sign_of_infinity_is_a_verdict(client, tmp_path, task):
    Network("inf in activation").write(tmp_path / "target", task)
    Network("minus inf in activation").write(tmp_path / "golden", task)
    rows = {row.name: row.verdict for row in compared(client, tmp_path / "target", tmp_path / "golden", rows="all")}
    assert rows["Functional.relu.1.forward.output.0"] == "non-finite"


@pytest.mark.parametrize("suffix", ["npy", "pt"])
@pytest.mark.parametrize("damage", ["deleted", "truncated", "junk"])
def test_damaged_content_is_a_verdict_of_its_own(client, tmp_path, damage, suffix):
    for side in ("target", "golden"):
        Network().write(tmp_path / side, "tensor")
        if suffix == "pt":
            as_torch_files(tmp_path / side)
    name = "Functional.linear.1.forward.output.0"
    file = tmp_path / "golden" / "dump_tensor_data" / f"{name}.{suffix}"
    if damage == "deleted":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-8] if damage == "truncated" else b"junk" * 25)
    rows = compared(client, tmp_path / "target", tmp_path / "golden")
    assert [(row.name, row.verdict) for row in rows] == [(name, "unreadable")]
    assert rows[0].message


@pytest.mark.parametrize("task", TASKS)
def test_clean_pairs_have_no_difference(client, tmp_path, task):
    for side in ("target", "golden"):
        Network().write(tmp_path / side, task)
    assert compared(client, tmp_path / "target", tmp_path / "golden") == []


def test_shifted_counts_match_without_their_numbers(client, tmp_path):
    """As after a warm-up that was not recorded: every number of a call is another one."""
    shifted = Network()
    numbered = {f"Functional.{op}.{i}.": f"Functional.{op}.{i + 7}." for op in ("linear", "relu") for i in range(3)}

    def renamed(name):
        return next((new + name.removeprefix(old) for old, new in numbered.items() if name.startswith(old)), name)

    shifted.data = {renamed(name): value for name, value in shifted.data.items()}
    shifted.construct = {renamed(name): parent for name, parent in shifted.construct.items()}
    shifted.write(tmp_path / "target", "statistics")
    Network().write(tmp_path / "golden", "statistics")
    exact = compared(client, tmp_path / "target", tmp_path / "golden")
    assert {row.verdict for row in exact} == {"target only", "golden only"}
    assert compared(client, tmp_path / "target", tmp_path / "golden", matching="fuzzy") == []


def test_only_the_rank_and_the_step_that_differ_are_told(client, tmp_path):
    write_ranks(tmp_path / "target", lambda step, rank: "weight" if (step, rank) == (1, 1) else "")
    write_ranks(tmp_path / "golden", lambda step, rank: "")
    rows = compared(client, tmp_path / "target", tmp_path / "golden")
    assert rows and {(row.step, str(row.rank)) for row in rows} == {(1, "rank1")}


def test_a_step_and_a_rank_that_one_side_lacks_are_told(client, tmp_path):
    from msprobe_client.comparison import UnpairedStep

    write_ranks(tmp_path / "target", lambda step, rank: "", steps=(0, 1))
    write_ranks(tmp_path / "golden", lambda step, rank: "", steps=(0, 1), ranks=(0, 1, 2))
    found = [
        item for item in client.compare(tmp_path / "target", tmp_path / "golden") if isinstance(item, UnpairedStep)
    ]
    assert [(item.side, item.step, str(item.rank)) for item in found] == [
        ("golden", 0, "rank2"),
        ("golden", 1, "rank2"),
    ]

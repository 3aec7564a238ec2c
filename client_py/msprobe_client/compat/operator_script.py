"""op_generate's script: one call on a device beside the CPU in the next wider dtype, as the tables that it printed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from msprobe_client.check.arguments import NotReplayable, dtype_of, finite_range
from msprobe_client.model import Number, TensorStats
from msprobe_client.repro.literals import source_of
from msprobe_client.repro.script import Script
from msprobe_client.repro.scripted_call import ScriptedCall

_DEVICE = """\
def has_npu():
    try:
        import torch_npu
    except ImportError:
        return False
    return torch_npu.npu.is_available()


there = "cuda" if torch.cuda.is_available() else "npu" if has_npu() else "cpu"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", default=there, help="cpu, cuda:0, npu:0; default: a GPU, an NPU, or the CPU")
device = parser.parse_args().device
if device.startswith("npu"):
    import torch_npu


"""
# Of one sequence of random numbers, in the order of the arguments: the tool's scripts draw the same tensors.
_DRAW = """\
def draw(dtype, shape, low, high, ends=None):
    # Within the recorded range, whose ends are the first and the last element.
    if dtype == torch.bool:
        return torch.randint(int(low), int(high) + 1, shape) > 0
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.rand(shape, dtype=dtype if dtype.itemsize > 1 else torch.float32) * (high - low) + low
    else:
        drawn = torch.randint(low, high + 1, shape)
    if drawn.numel():
        drawn.view(-1)[0], drawn.view(-1)[-1] = ends or (low, high)
    return drawn.to(dtype)


"""
_WIDER = """\
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def wider(x):
    return x.to(WIDER.get(x.dtype, x.dtype))


"""
_SHOW = """\
def show(rows):
    rows = [("Metric", "Value"), *((name, f"{value}") for name, value in rows)]
    name, value = (max(map(len, column)) for column in zip(*rows))
    line = f"+{'-' * (name + 2)}+{'-' * (value + 2)}+"
    print(line)
    for row in rows:
        print(f"| {row[0]:<{name}} | {row[1]:<{value}} |")
        print(line.replace("-", "=") if row is rows[0] else line)


"""
_EQUAL = """\
def equal(mine, right):  # numbers, not tensors
    same = bool(mine == right) or bool(mine != mine and right != right)
    print(f"PASS: both are {mine.item()}" if same else f"ERROR: {mine.item()} on the device, {right.item()} is right")


"""
_SHARE = """\
def share(found, among):
    return (found & among).sum() / among.sum() if among.any() else 0


"""
_COMPARE = """\
def compare(mine, right):
    if mine.shape != right.shape:
        print(f"ERROR: shapes differ: {list(mine.shape)} on the device, {list(right.shape)} is right")
    elif mine.numel() == 0:
        print("No elements on either side.")
    elif kind(mine) != kind(right):
        print(f"ERROR: {mine.dtype} on the device cannot be compared with {right.dtype}")
    else:
        dtypes = ("Dtype of out_device", mine.dtype), ("Dtype of out_bench", right.dtype)
        show([("Shape", right.shape), *dtypes, *measured(mine, right)])


def kind(x):
    if x.is_floating_point():
        return "float" if x.dtype.itemsize > 1 else x.dtype
    return "complex" if x.is_complex() else "bool" if x.dtype == torch.bool else "integer"


"""
_EXACT = """\
def exact(mine, right):
    differ = (mine != right) & ~((mine != mine) & (right != right))
    return [("Compare Standard", "Binary Equality Standard"), ("Error Rate", int(differ.sum()) / mine.numel())]


"""
_MEASURED = """\
def measured(mine, right):
    if mine.is_complex():
        mine, right = torch.view_as_real(mine), torch.view_as_real(right)
    if not mine.is_floating_point():
        return exact(mine, right)
"""
_FLOATS = """\
    error, size, held = (mine - right).abs(), right.abs(), right.to(mine.dtype)
    finite = mine.isfinite() & held.isfinite()
"""
_RELATIVE = """\
    relative = error / (size + 2.0 ** (-52 if right.dtype == torch.float64 else -23))
"""
_SMALL = """\
    least, most = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1e-3, 1e-5)}.get(mine.dtype, (1e-6, 1e-9))
    small = finite & (size <= least)
    normal = finite & ~small
"""
_ABSOLUTE = """\
    limit = {torch.float16: 1e-3, torch.bfloat16: 4e-3}.get(mine.dtype, 1e-6)
    rows = [
        ("Compare Standard", "Absolute Threshold Standard"),
        ("Relative Error Ratio", share(relative > limit, normal)),
        ("Absolute Error Ratio", share(error > most, small)),
    ]
"""
_ULP = """\
    # The step at a number's power of two; at zero, that of 1.
    digits, lowest = {torch.float16: (10, -14), torch.bfloat16: (7, -126)}.get(mine.dtype, (23, -126))
    power = torch.where(right == 0, 0, torch.frexp(right).exponent - 1).clamp(min=lowest)
    ulps = (error.double() * torch.exp2(digits - power.double())).to(right.dtype).where(finite, 0)
    rows = [
        ("Compare Standard", "ULP error Standard"),
        ("Maximum ULP Error", ulps.max()),
        ("Mean ULP Error", ulps.mean()),
        ("ULP Error Proportion", (ulps > (32 if mine.dtype == torch.float32 else 1)).sum() / ulps.numel()),
    ]
"""
_THOUSANDTH = """\
    rows = [
        ("Compare Standard", "Thousandth Standard"),
        ("Thousandth ratio", (relative < 0.001).sum() / relative.numel()),
    ]
"""
_BENCHMARK = """\
    relative, error, count = relative.where(normal, 0), error.where(normal, 0), normal.sum()
    rows = [
        ("Compare Standard", "Benchmark Standard"),
        ("Small Value Error Proportion", share((mine - right).abs() > most, small)),
        ("Maximum Relative Error", relative.max() if count else 0),
        ("Mean Relative Error", relative.sum() / count if count else 0),
        ("Root Mean Squared Error", (error.square().sum() / count).sqrt() if count else 0),
        ("Error Balance", ((mine > held).sum() - (mine < held).sum()).abs() / mine.numel()),
    ]
"""
_NON_FINITE = """\
    if not finite.all():
        same = (mine == held) | (mine.isnan() & right.isnan())
        rows.append(("Inf/NaN Error Ratio", (~same & ~finite).sum() / (~finite).sum()))
    return rows


"""
_MAIN = """\
    mine, right = run(call, device), run(call, "cpu", wider)
    print("Compare result:")
"""
# By the names that the server gives the standards. One that is not here is the benchmark's.
_STANDARDS = {
    "absolute_threshold": _RELATIVE + _SMALL + _ABSOLUTE,
    "ulp": _ULP,
    "double_thousandth": _RELATIVE + _THOUSANDTH,
}
_WITHOUT_SHARES = frozenset({"ulp", "double_thousandth"})


def operator_script(call: ScriptedCall, standard: str, *, real: bool, seed: int, times: int) -> Script:
    """standard: by which floats are compared, of check.standards. real: the tensors are those that were saved, in a
    bundle beside the script; else they are drawn, `times` times. Raises NotReplayable."""
    if call.random:
        raise NotReplayable(
            f"{call.name.operation} is random, so two devices differ; msprobe-client repro holds it against its "
            "distribution"
        )
    contents, tensors = call.bundled_tensors() if real else ({}, list(_drawn(call)))
    imports = ("argparse", "json", "pathlib") if real else ("argparse",)
    numbers = [] if call.backward else _numbers(call)
    inputs = "inputs as saved" if real else f"inputs drawn within the recorded ranges, seed {seed}"
    text = [
        f'"""{call.full_name}: {call.function} on a device beside the CPU in the next wider dtype."""\n',
        f"# Needs torch alone; {inputs}.\n",
        *call.origin(),
        *(f"import {module}\n" for module in imports),
        "\nimport torch\n\n\n",
        _DEVICE,
        call.reads_bundle() if real else _DRAW,
        _WIDER,
        f"def call(t, device):\n{call.body()}\n\n",
        *call.run_function(seeded=False),
        _EQUAL * bool(numbers),
        *_comparison(standard),
        f"torch.manual_seed({seed})\n",
        f"for i in range({1 if real else times}):\n",
        '    print(f"iter: {i}:")\n',
        "    TENSORS = {\n",
        *(f"    {line}" for line in tensors),
        "    }\n",
        _MAIN,
        *_loop(call, numbers),
        'print("Compare finished.")\n',
    ]
    return Script(call.full_name, "".join(text), contents)


def _drawn(call: ScriptedCall) -> Iterator[str]:
    recorded = {
        name.removeprefix(f"{record.full_name}."): stats
        for record in (call.recorded.forward,)
        for name, stats in record.tensors()
    }
    backward = call.recorded.backward
    if backward is not None:
        incoming = f"{backward.full_name}.input."
        recorded |= {
            f"grad.{name.removeprefix(incoming)}": stats
            for name, stats in backward.tensors()
            if name.startswith(incoming)
        }
    for place, tensor in call.named_tensors():
        low, high, ends = _range(recorded[place])
        words = [str(tensor.dtype), str(tuple(tensor.shape)), *(source_of(end, {}) for end in (low, high))]
        words += [source_of(ends, {})] * bool(ends)
        yield f'    "{place}": draw({", ".join(words)}),\n'


def _range(stats: TensorStats) -> tuple[Number, Number, tuple[Number, Number] | None]:
    """What is drawn between, and other ends where an end is not finite."""
    low, high = stats.min, stats.max
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        return (*_whole(stats, low, high), None)
    found = _whole(stats, *finite_range(stats))
    return (*found, None if low is None or high is None else (low, high))


def _whole(stats: TensorStats, low: Number, high: Number) -> tuple[Number, Number]:
    dtype = dtype_of(stats.dtype)
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return low, high
    return int(low), min(int(high), 2**63 - 2)


def _numbers(call: ScriptedCall) -> list[str]:
    """The outputs that are numbers and no tensors."""
    record = call.recorded.forward
    if call.single or "output" not in record.fields:
        return []
    tensors = {name.removeprefix(f"{record.full_name}.") for name, _ in record.tensors()}
    return [place for place, _ in call.golden.outputs if place not in tensors]


def _comparison(standard: str) -> Iterator[str]:
    yield _SHOW
    yield _EXACT
    if standard == "binary":
        yield _COMPARE.replace("measured", "exact")
        return
    yield _SHARE * (standard not in _WITHOUT_SHARES)
    yield _MEASURED + _FLOATS
    yield _STANDARDS.get(standard, _RELATIVE + _SMALL + _BENCHMARK)
    yield _NON_FINITE
    yield _COMPARE


def _loop(call: ScriptedCall, numbers: list[str]) -> Iterator[str]:
    judge = f"(equal if place in {numbers!r} else compare)" if numbers else "compare"
    if not call.backward and (call.single or call.answers_a_number):
        yield f"    {'equal' if numbers else 'compare'}(*mine.values(), *right.values())\n"
        return
    yield "    for index, place in enumerate(mine):\n"
    yield '        print(f"index {index}:")\n'
    yield f"        {judge}(mine[place], right[place])\n"

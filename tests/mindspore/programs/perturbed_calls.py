"""Cases of test_free_benchmark.py, each a call that goes through the stage alone: python perturbed_calls.py OUT.

Prints `said JSON`: case -> the csv's max_rel of each row, or what else the case is about.
"""

import contextlib
import csv
import json
import pathlib
import sys

import mindspore as ms
import numpy as np
from lines import tell
from mindspore import Parameter, Tensor, mint, ops
from msprobe import _mindspore
from msprobe.mindspore import MsprobeError
from msprobe.mindspore._calls import StagedCall
from msprobe.mindspore._refusals import refuse
from msprobe.mindspore.free_benchmark import perturbing
from msprobe.mindspore.free_benchmark.rerun import wait
from msprobe.mindspore.free_benchmark.stage import FreeBenchmark

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
OUT = pathlib.Path(sys.argv[1])
OUT.mkdir(parents=True)


def config_of(mode, **section):
    text = {"task": "free_benchmark", "dump_path": str(OUT), "free_benchmark": {"pert_mode": mode, **section}}
    return _mindspore.parse_config(json.dumps(text), task=None, dump_path=None, level=None, step=None)


def ran(mode, function, *args, name="Mint.log.0.forward", **section):
    stage = FreeBenchmark(config_of(mode, **section), lambda: 3)
    return stage(StagedCall(name, 0, args, {}, args, function, False))


def rows():
    """Those written since the last time."""
    path = OUT / "free_benchmark.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    path.unlink()
    return found


def shares(mode, function, *args, **asked):
    ran(mode, function, *args, **asked)
    return [row["max_rel"] for row in rows()]


def tensor(*numbers, dtype=np.float32):
    return Tensor(np.array(numbers, dtype))


def refusal(mode, **section):
    try:
        refuse(config_of(mode, **section))
    except MsprobeError as error:
        return str(error)
    return None


def cases():
    near, ones = Tensor(np.linspace(1.0002, 1.0004, 64).astype(np.float32)), tensor(1, 1, 1)
    large = np.full(5 << 20, 2, np.float32)
    large[:64] = 1.0003
    yield "large", shares("bit_noise", mint.log, Tensor(large))
    yield "small", shares("bit_noise", lambda x: mint.log(x) * 1e-3, near)
    yield "each input", shares("bit_noise", lambda x, y: x + mint.log(y) * 1e6, Tensor(np.ones(64, np.float32)), near)
    yield "nan", shares("bit_noise", lambda x: ops.select(x == 1, x, x / 0 * 0), ones)
    yield "inf", shares("bit_noise", lambda x: ops.select(x == 1, x, x / 0), ones)
    yield "both nan", shares("bit_noise", ops.relu, tensor(np.nan, np.inf, -np.inf, 0, 1.5))
    yield "sign", shares("bit_noise", lambda x: ops.select(x == 1, x, -x), ones)
    yield "swapped", shares("change_value", mint.abs, tensor(1, 2, 4))
    yield "no change", shares("no_change", mint.abs, tensor(1, 2, 4))
    turns = iter([tensor(1, 1e-9), tensor(1, 1.0000002e-9)])
    yield "any change", shares("no_change", lambda x: x * next(turns), tensor(1, 1))
    yield "better", shares("improve_precision", ops.norm, tensor(300, 900, dtype=np.float16))
    yield "complex", shares("no_change", mint.abs, tensor(1 + 2j, dtype=np.complex64))
    yield "no numbers", shares("bit_noise", mint.abs, tensor(1, 2, dtype=np.int64))
    yield "pair", shares("change_value", lambda x: (x, x * 0 + 1), tensor(1, 2))

    def grown(x):
        return x * 1.1 * 1.1 * 1.1

    def better(x):
        return ran("improve_precision", grown, x, handler_type="fix")

    half = Tensor(np.linspace(0.5, 2, 64).astype(np.float16))
    wide = grown(half.astype(ms.float32)).astype(ms.float16)
    gradients = ms.grad(better)(half) == ms.grad(grown)(half)
    yield "fix", [bool(each.all()) for each in (better(half) == wide, grown(half) == wide, gradients)]

    moved = Parameter(tensor(1, 1), name="moved")
    ran("no_change", ops.assign_add, moved, tensor(1, 2), name="Functional.assign_add.0.forward")
    yield "once", moved.asnumpy().tolist()

    times = []
    for name in (
        "Functional.dropout",
        "Primitive.drop.Dropout",
        "Mint.randn_like",
        "Functional.normal",
        "Jit.f",
        "mine.f",
    ):
        ran("no_change", lambda x, name=name: times.append(name) or x, ones, name=f"{name}.0.forward")
    ran("no_change", lambda x: times.append("again") or x, ones, name="Mint.normalize.0.forward")
    yield "run", times

    seen = []

    def once(x):
        seen.append(x)
        if len(seen) == 1:  # MindSpore tells of it later, wherever the program waits next
            return mint.matmul(x, mint.ones((5, 5)))
        return x

    result = ran("no_change", once, ones, name="Mint.once.0.forward")
    yield "late error", [result is seen[1], mint.add(ones, 1).asnumpy().tolist()]
    try:
        ran("no_change", lambda x: mint.matmul(x, mint.ones((5, 5))).asnumpy(), ones, name="Mint.matmul.0.forward")
        yield "program's error", None
    except (RuntimeError, ValueError) as error:
        yield "program's error", type(error).__name__
    runs = iter([False, True])

    def late(x):
        return mint.matmul(x, mint.ones((5, 5))) if next(runs) else x

    try:
        ran("no_change", late, ones, name="Mint.late.0.forward")
        yield "program's late error", None
    except (RuntimeError, ValueError) as error:
        yield "program's late error", type(error).__name__
    with contextlib.suppress(RuntimeError, ValueError):  # MindSpore may raise an error of its other threads once more
        wait()

    bits = {}
    for name, dtype in (("float16", ms.float16), ("bfloat16", ms.bfloat16), ("float32", ms.float32)):
        given = tensor(3, -1.5, 1e-5, 0, 250, 7).astype(dtype)
        for mode in perturbing.CHANGES:
            (change,) = perturbing.one_by_one(mode, [given])
            changed = change(given)
            assert changed.dtype == dtype
            bits[f"{mode} {name}"] = changed.astype(ms.float32).asnumpy().tolist()
    yield "bits", bits
    yield "to_cpu", refusal("to_cpu", fuzz_device="cpu")
    yield "preheat", refusal("bit_noise", if_preheat=True)


tell("said", json.dumps(dict(cases())))

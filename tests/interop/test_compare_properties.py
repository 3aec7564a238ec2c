"""Pairs of tensors that hypothesis makes up, of every dtype: each metric and the verdict against long double."""

import itertools
import json
import math
import os
import pathlib
import sys

import numpy
import pytest
from harness.drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from metric_oracle import PERCENTILES, expected  # noqa: E402

FLOATS = ("float64", "float32", "float16", "bfloat16")
FLOATS8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
COMPLEX = ("complex64", "complex128")
SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16, "bool": 1}
# Values whose squares are 0 or infinite in a double are lost, as documented.
MIN, MAX = 1e-150, 1e150
NORMAL = sys.float_info.min
SUMS, MAX_OF_SUMS = ("max_abs", "mean_abs", "max_rel", "mean_rel"), 1e304
SQUARES = ("rms_abs", "euclidean", "cosine", "rms_rel")
SHAPES = ((), (0,), (3, 0), (1,), (7,), (5, 3), (2, 1, 4), (33,), (1025,))


def size_of(dtype):
    return SIZES.get(dtype) or int("".join(c for c in dtype.split("_")[0] if c.isdigit())) // 8


def pool(dtype):
    """Elements that comparisons get wrong: as raw bytes."""
    if dtype in WHOLE:
        if dtype == "bool":
            return [b"\0", b"\1"]
        info = numpy.iinfo(dtype)
        values = {info.min, info.min + 1, 0, 1, 2, 3, info.max - 1, info.max}
        values |= {value for value in (2**53, 2**53 + 1, -(2**53) - 1) if info.min <= value <= info.max}
        return [numpy.array(value, dtype).tobytes() for value in sorted(values)]
    if dtype in FLOATS8:
        return [
            bytes([code]) for code in (0, 1, 2, 7, 0x38, 0x3C, 0x7B, 0x7C, 0x7D, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
        ]
    part = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    info = torch.finfo(getattr(torch, part))
    numbers = [0.0, -0.0, 1.0, -1.0, 1.0 + info.eps, 1.0 + 2 * info.eps, 3.5, 1e-3, -7e-3, info.tiny, info.tiny / 4]
    numbers += [info.max, -info.max, math.nan, math.inf, -math.inf]
    made = torch.tensor(numbers, dtype=torch.float64).to(getattr(torch, part))
    raw = made.view(torch.uint8).reshape(len(numbers), -1).numpy()
    return [row.tobytes() for row in raw]


@st.composite
def pairs(draw, dtype):
    """Two tensors of a shape; the second is the first with some elements changed, or another one."""
    shape = draw(st.sampled_from(SHAPES))
    known = pool(dtype)
    parts = 2 if dtype in COMPLEX else 1
    count = math.prod(shape) * parts
    # Long ones repeat the drawn elements, which differ in their places only.
    drawn = draw(st.lists(st.sampled_from(known), min_size=1, max_size=24))
    first = list(itertools.islice(itertools.cycle(drawn), count))
    second = list(first)
    for index in draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=6)):
        if count:
            second[index] = draw(st.sampled_from(known))
    transposed = draw(st.booleans()) and len(shape) == 2

    def tensor(elements):
        raw = numpy.frombuffer(b"".join(elements), dtype=numpy.uint8).copy()
        flat = (
            torch.from_numpy(raw).view(getattr(torch, dtype)) if count else torch.empty(0, dtype=getattr(torch, dtype))
        )
        made = flat.reshape(shape)
        return made.T if transposed else made

    return tensor(first), tensor(second)


@pytest.fixture(scope="module")
def compare(tmp_path_factory):
    binary = os.environ.get("MSPROBE_SERVER_BINARY", str(pathlib.Path(sys.executable).parent / "msprobe-server"))
    if not os.access(binary, os.X_OK):
        pytest.skip(f"no msprobe-server at {binary}: run `make build` or set MSPROBE_SERVER_BINARY")
    from msprobe_client import Client

    root = tmp_path_factory.mktemp("properties")
    numbers = itertools.count()

    def rows(batch, client):
        directory = root / str(next(numbers))
        for side, index in (("target", 0), ("golden", 1)):
            tensors = directory / side / "dump_tensor_data"
            tensors.mkdir(parents=True)
            data = {}
            for number, pair in enumerate(batch):
                name = f"Functional.op.{number}.forward"
                file = f"{name}.input.0.pt"
                torch.save(pair[index], tensors / file)
                leaf = {"type": "torch.Tensor", "dtype": str(pair[index].dtype), "shape": list(pair[index].shape)}
                data[name] = {"input_args": [{**leaf, "data_name": file}], "output": []}
            document = {"task": "tensor", "level": "L1", "data": data}
            (directory / side / "dump.json").write_text(json.dumps(document))
        found = client.compare(
            directory / "target", directory / "golden", rows="all", order="execution", rtol=0, atol=0
        )
        return [row for row in found if hasattr(row, "verdict")]

    with Client(data_dir=root / "store", create=True) as client:
        yield lambda batch: rows(batch, client)


def lost(name, target, golden):
    """Whether a number on the way to this metric has no double."""
    if name not in (*SQUARES, *SUMS, *PERCENTILES):
        return False
    if target.is_complex():
        target, golden = torch.view_as_real(target), torch.view_as_real(golden)
    a, b = target.to(torch.float64), golden.to(torch.float64)
    finite = a.isfinite() & b.isfinite()
    values = torch.cat([a[finite], b[finite], (a - b)[finite], ((a - b) / b)[finite & (b != 0)]]).abs()
    values = values[values != 0]
    if name in PERCENTILES:
        return bool((values < NORMAL).any())
    if name in SUMS:
        return bool((values > MAX_OF_SUMS).any())
    return bool(((values < MIN) | (values > MAX)).any())


@pytest.mark.parametrize("dtype", FLOATS + FLOATS8 + WHOLE + COMPLEX)
def test_every_metric_and_verdict_of_made_up_pairs(compare, dtype):
    @drawn(12)
    @given(st.lists(pairs(dtype), min_size=6, max_size=12))
    def check(batch):
        rows = compare(batch)
        assert len(rows) == len(batch)
        for (target, golden), row in zip(batch, rows, strict=True):
            assert row.basis == "content", row
            wanted = expected(target, golden)
            for name, value in wanted.items():
                if name.startswith("ulp") and target.is_complex():
                    continue  # steps of a complex number are not defined
                near = 0.045 if name in PERCENTILES else 1e-12
                small = 1e-15 if name == "cosine" else 5e-324
                ours = row.metrics[name]
                assert lost(name, target, golden) or math.isclose(ours, float(value), rel_tol=near, abs_tol=small), (
                    name,
                    ours,
                    float(value),
                    target,
                    golden,
                )
            unlike = sum(wanted[name] for name in ("nan_mismatches", "inf_mismatches", "inf_sign_mismatches"))
            verdict = "non-finite" if unlike else "differs" if wanted["different"] else "equal"
            assert row.verdict == verdict, (row.verdict, target, golden)

    check()

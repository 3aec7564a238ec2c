"""Every metric of the element by element comparison against numpy in long double."""

import json
import math
import os
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")

from metric_oracle import PERCENTILES, expected  # noqa: E402

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)


def generated():
    """Pairs of tensors: (target, golden)."""
    generator = torch.Generator().manual_seed(20)
    pairs = []
    for dtype in FLOATS:
        for count in (1, 2, 7, 1023, 1025, 5000):
            base = torch.randn(count, generator=generator, dtype=torch.float64)
            noise = torch.randn(count, generator=generator, dtype=torch.float64)
            for size in (0.0, 1e-6, 1e-3, 1.0):
                pairs.append(((base + size * noise).to(dtype), base.to(dtype)))
            sparse = base.clone()
            sparse[::3] = 0
            pairs.append((base.to(dtype), sparse.to(dtype)))
            pairs.append((sparse.to(dtype), base.to(dtype)))
            spoiled = (base * 2).to(dtype)
            for place, value in ((0, math.nan), (count // 2, math.inf), (count - 1, -math.inf)):
                spoiled[place] = value
            other = spoiled.clone()
            other[count // 3] = -1.5
            other[-1] = math.inf
            pairs += [(spoiled, base.to(dtype)), (base.to(dtype), spoiled), (spoiled, other), (spoiled, spoiled)]
        # Squares of the largest doubles have no double.
        largest = 1e150 if dtype == torch.float64 else torch.finfo(dtype).max
        far = torch.tensor([largest, torch.finfo(dtype).tiny, 0.0, -1.0], dtype=dtype)
        pairs.append((far, far.flip(0)))
        steps = torch.nextafter(torch.ones(4), torch.tensor(2.0)).to(dtype)
        pairs.append((steps, torch.ones(4, dtype=dtype)))
    for dtype in WHOLE:
        low, high = (0, 2) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        for count in (1, 40, 3000):
            drawn = [torch.randint(low, high, (count,), generator=generator).to(dtype) for _ in range(2)]
            pairs += [tuple(drawn), (drawn[0], drawn[0])]
    pairs.append((torch.tensor([2**53 + 1, -(2**63)]), torch.tensor([2**53, 2**63 - 1])))
    pairs.append((torch.randn(500, generator=generator).half(), torch.randn(500, generator=generator)))
    pairs.append((torch.randn(50, 3, generator=generator).T, torch.randn(3, 50, generator=generator)))
    pairs.append((torch.randn(3000, 1500, generator=generator), torch.randn(3000, 1500, generator=generator)))
    return pairs


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """(pair, metrics of our comparison), for every pair."""
    binary = os.environ.get("MSPROBE_SERVER_BINARY", str(pathlib.Path(sys.executable).parent / "msprobe-server"))
    if not os.access(binary, os.X_OK):
        pytest.skip(f"no msprobe-server at {binary}: run `make build` or set MSPROBE_SERVER_BINARY")
    from msprobe_client import Client
    from msprobe_client.comparison import ComparedTensor

    root = tmp_path_factory.mktemp("metrics")
    pairs = generated()
    for side, index in (("target", 0), ("golden", 1)):
        tensors = root / side / "dump_tensor_data"
        tensors.mkdir(parents=True)
        data = {}
        for number, pair in enumerate(pairs):
            name = f"Functional.op.{number}.forward"
            file = f"{name}.input.0.pt"
            torch.save(pair[index], tensors / file)
            tensor = {"type": "torch.Tensor", "dtype": str(pair[index].dtype), "shape": list(pair[index].shape)}
            data[name] = {"input_args": [{**tensor, "data_name": file}], "output": []}
        (root / side / "dump.json").write_text(json.dumps({"task": "tensor", "level": "L1", "data": data}))
    with Client(data_dir=root / "store", create=True) as client:
        rows = client.compare(root / "target", root / "golden", rows="all", order="execution", rtol=0.01, atol=0.0)
        tensors = [row for row in rows if isinstance(row, ComparedTensor)]
    assert len(tensors) == len(pairs)
    return list(zip(pairs, tensors, strict=True))


def test_every_metric_is_what_numpy_says(found):
    wrong = []
    for number, ((target, golden), row) in enumerate(found):
        assert row.basis == "content", (number, row)
        for name, value in expected(target, golden).items():
            ours = row.metrics[name]
            near = 0.045 if name in PERCENTILES else 1e-12
            if not math.isclose(ours, float(value), rel_tol=near, abs_tol=1e-15 if name == "cosine" else 0):
                wrong.append((number, str(target.dtype), target.numel(), name, ours, float(value)))
    assert not wrong, "\n".join(map(str, wrong[:30]))


def test_the_worst_element_is_one_of_the_largest_error(found):
    for (target, golden), row in found:
        if not row.metrics["max_abs"] or not target.is_floating_point() or target.dtype != golden.dtype:
            continue
        place = row.metrics["worst_index"]
        a, b = (float(tensor.contiguous().ravel()[place]) for tensor in (target, golden))
        assert (a, b) == (row.metrics["worst_target"], row.metrics["worst_golden"])
        assert math.isclose(abs(a - b), row.metrics["max_abs"], rel_tol=1e-15)


def test_verdicts_follow_from_the_elements(found):
    for (target, golden), row in found:
        unlike = any(row.metrics[name] for name in ("nan_mismatches", "inf_mismatches", "inf_sign_mismatches"))
        if unlike:
            assert row.verdict == "non-finite"
        elif not row.metrics["different"]:
            assert row.verdict == "equal"
        elif not target.is_floating_point():
            assert row.verdict == "differs"  # integers have no tolerance
        else:
            a, b = target.double(), golden.double()
            over = ((a - b).abs() > 0.01 * b.abs()) & a.isfinite() & b.isfinite()
            assert row.metrics["over_tolerance"] == int(over.sum())
            assert row.verdict == ("differs" if over.any() else "within")


def test_integers_past_2_to_the_53_are_exact(found):
    (row,) = [row for (target, _), row in found if target.dtype == torch.int64 and target.numel() == 2]
    assert row.metrics["different"] == 2 and row.metrics["max_abs"] == float(2**64 - 1)

"""Every metric of the element by element comparison in long double, as docs/analysis.md defines it."""

import math

import numpy
import torch

SHARES = {"share_under_1e2": 1e-2, "share_under_5e3": 5e-3, "share_under_1e3": 1e-3, "share_under_1e4": 1e-4}
PERCENTILES = {"abs_p50": 50, "abs_p90": 90, "abs_p99": 99, "abs_p999": 99.9}
ULP_LIMIT = {torch.float32: 32, torch.float64: 32, torch.float16: 1, torch.bfloat16: 1}
ORDERED = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def elements(tensor, whole):
    """Row-major, as numbers that numpy knows."""
    if whole and tensor.dtype == torch.uint64:
        return numpy.ravel(tensor.numpy())
    return numpy.ravel(tensor.to(torch.int64 if whole else torch.float64).numpy())


def expected(target, golden):
    """The definitions of docs/analysis.md."""
    target, golden = (torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in (target, golden))
    whole = not target.is_floating_point() and not golden.is_floating_point()
    a, b = (elements(tensor, whole) for tensor in (target, golden))
    exact = numpy.array([int(x) - int(y) for x, y in zip(a, b, strict=True)], dtype=object) if whole else None
    a, b = a.astype(numpy.longdouble), b.astype(numpy.longdouble)
    finite = numpy.isfinite(a) & numpy.isfinite(b)
    with numpy.errstate(invalid="ignore"):
        difference = exact.astype(numpy.longdouble) if whole else a - b
    nan_a, nan_b, inf_a, inf_b = numpy.isnan(a), numpy.isnan(b), numpy.isinf(a), numpy.isinf(b)
    result = {
        "elements": a.size,
        "compared": int(finite.sum()),
        "nan_mismatches": int((nan_a != nan_b).sum()),
        "inf_mismatches": int(((inf_a != inf_b) & (nan_a == nan_b)).sum()),
        "inf_sign_mismatches": int((inf_a & inf_b & (a != b)).sum()),
    }
    x, y, d = a[finite], b[finite], numpy.abs(difference[finite])
    count = max(len(d), 1)
    result["different"] = int((d != 0).sum())
    result |= {"max_abs": d.max(initial=0), "mean_abs": d.sum() / count, "rms_abs": numpy.sqrt((d * d).sum() / count)}
    result["euclidean"] = numpy.sqrt((d * d).sum())
    nonzero = y != 0
    relative = d[nonzero] / numpy.abs(y[nonzero])
    divisor = max(len(relative), 1)
    result |= {"max_rel": relative.max(initial=0), "mean_rel": relative.sum() / divisor}
    result["rms_rel"] = numpy.sqrt((relative * relative).sum() / divisor)
    for name, limit in SHARES.items():
        under = d.astype(float) < limit * numpy.abs(y.astype(float))  # in doubles: ties are rounded there
        result[name] = (under | (d == 0)).sum() / count if len(d) else 1
    norms = numpy.sqrt((x * x).sum()), numpy.sqrt((y * y).sum())
    same_bits = target.dtype == golden.dtype and content(target) == content(golden)
    if same_bits or norms == (0, 0):
        result["cosine"] = 1
    else:
        result["cosine"] = 0 if 0 in norms else (x * y).sum() / norms[0] / norms[1]
    for name, percent in PERCENTILES.items():
        rank = max(math.ceil(percent / 100 * len(d) - 1e-9), 1)
        result[name] = numpy.sort(d)[rank - 1] if len(d) else 0
    if target.dtype == golden.dtype and target.dtype in ORDERED:
        steps = ulps(target, golden)[finite]
        result |= {"ulp_max": steps.max(initial=0), "ulp_mean": steps.sum() / count}
        result["ulp_share_over"] = (steps > ULP_LIMIT[target.dtype]).sum() / count
    return result


def content(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def ulps(target, golden):
    kind = ORDERED[target.dtype]
    lowest = torch.iinfo(kind).min
    # Steps between doubles of different sign pass an int64.
    wide = object if kind == torch.int64 else numpy.int64

    def ordered(tensor):
        bits = tensor.contiguous().reshape(-1).view(kind).numpy().astype(wide)
        return numpy.where(bits >= 0, bits, lowest - bits)

    return numpy.abs(ordered(target) - ordered(golden)).astype(numpy.longdouble)

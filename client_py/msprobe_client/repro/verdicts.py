"""Policies of check as a few lines of torch, for outputs of one dtype. server/analysis/check has the same rules."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

# Policies that count what float64 gives with rounded inputs as the plain implementation, on the CPU.
BY_NOISE = frozenset({"default", "fp64-ratio"})
# Of these policies the plain implementation is a pair: its largest and its rms error.


# torch.testing's tolerances (rtol, atol) and CANN's threshold, by dtype. Those of 8 bits follow from their step.
_TORCH = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}
_CANN = {torch.float64: 2**-13, torch.float32: 2**-13, torch.float16: 2**-10, torch.bfloat16: 2**-7}
_PARTS = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}

_COMPARED = """\
def judged{suffix}(output, golden, plain=None):
    # Policy {policy!r} of msprobe for {dtype}. A golden number that the dtype cannot hold counts as infinite.
    a, b = {a}, {b}
    finite = a.isfinite() & (b.abs() <= {largest!r})
    huge = torch.minimum(a.abs(), b.abs()) >= {overflows!r}
    same = {same}
    wrong, n = int((~finite & ~same).sum()), max(int(finite.sum()), 1)
    if wrong:
        return "fail", "inf_nan", wrong, 0
    a, b = a.where(finite, 0), b.where(finite, 0)
    d, size = (a - b).abs(), b.abs()
{ulps}"""
_ULPS = """\
    least = size.clamp(min={tiny!r})
    ulps = d / (least / (2 * torch.frexp(least).mantissa) * {eps!r})
"""
_WITHIN = """\
    largest, rms = float(d.max()), math.sqrt(float(d.square().sum()) / n)
"""
_BY_SIZE = """\
    if ulps.max() <= 4:
        return "pass", "max_ulp", float(ulps.max()), 4
"""
_DEFAULT = """\
    # Roundings of the largest number and of the rms; or the errors of the plain implementation.
    most = {alone_max!r} * {eps!r} * float(size.max())
    usual = {alone_rms!r} * {eps!r} * math.sqrt(float(size.square().sum()) / n)
    if plain:
        most, usual = max(most * {max_share!r}, 8 * plain[0]), max(usual * {rms_share!r}, 3 * plain[1])
    if largest > most:
        return "fail", "max_abs", largest, most
    return "pass" if rms <= usual else "fail", "rms_abs", rms, usual
"""
_EXACT = """\
def equal(output, golden, plain=None):
    # Integers and bools: nothing may differ.
    different = int((output != golden).sum())
    return "fail" if different else "pass", "binary", different, 0
"""
_EXACT_TIES = """\
def equal(output, golden, plain=None):
    # Indices: nothing may differ, but that they point to equal numbers.
    different = int((output != golden).sum())
    if different and {tied}:
        return "pass", "equal_elements", different, 0
    return "fail" if different else "pass", "binary", different, 0
"""


def errors_source(dtype: torch.dtype) -> str:
    """The function `errors`, for text."""
    return f"""\
def errors(output, golden):  # the largest and the rms
    a, b = {_elements("output", dtype)}, {_elements("golden", dtype)}
    finite = a.isfinite() & {_elements("golden.to(output.dtype)", dtype)}.isfinite()
    d = (a - b).where(finite, 0)
    return float(d.abs().max()), math.sqrt(float(d.square().sum()) / max(int(finite.sum()), 1))
"""


def errors(output: torch.Tensor, golden: torch.Tensor) -> tuple[float, float]:
    """The largest and the rms error of what the dtype can hold."""
    a, b = output.double(), golden.double()
    finite = a.isfinite() & golden.to(output.dtype).double().isfinite()
    d = (a - b).where(finite, 0)
    return float(d.abs().max()), math.sqrt(float(d.square().sum()) / max(int(finite.sum()), 1))


def judge_source(policy: str, dtype: torch.dtype, level: str, suffix: str = "") -> str:
    """The function judged(output, golden, plain): (verdict, rule, measured, limit).

    level: of the operator, for `cann`, as check.standards has it.
    """
    part = _PARTS.get(dtype, dtype)
    largest, overflows = _range(part)
    if _has_infinity(part):
        same = "(a.isnan() & b.isnan()) | (huge & (a.sign() == b.sign()) & (a.isinf() | b.isfinite()))"
    else:
        beyond = f"(b.isnan() | (b.abs() > {largest!r}))"
        same = f"(a.isnan() & {beyond}) | (huge & (a.sign() == b.sign()))"
    info = torch.finfo(part)
    body, needs_ulps = _RULES[policy](part, level)
    ulps = _ULPS.format(tiny=info.smallest_normal, eps=info.eps) if needs_ulps else ""
    return (
        _COMPARED.format(
            suffix=suffix,
            policy=policy,
            dtype=str(dtype).removeprefix("torch."),
            a=_elements("output", dtype),
            b=_elements("golden", dtype),
            largest=largest,
            overflows=overflows,
            same=same,
            ulps=ulps,
        )
        + body
    )


def equal_source(tied: str = "") -> str:
    """The function `equal`, of outputs without floats. tied: an expression that tells whether indices are as good."""
    return _EXACT_TIES.format(tied=tied) if tied else _EXACT


def _elements(name: str, dtype: torch.dtype) -> str:
    real = f"torch.view_as_real({name}.to(torch.complex128))" if dtype.is_complex else f"{name}.double()"
    return f"{real}.flatten()"


def _range(dtype: torch.dtype) -> tuple[float, float]:
    """The largest number that still rounds to a finite one; and from where rounding may overflow."""
    info = torch.finfo(dtype)
    ulp = 2.0 ** (math.frexp(info.max)[1] - 1) * info.eps
    return info.max + (ulp / 2 if dtype != torch.float64 else 0.0), info.max - 4 * ulp


def _has_infinity(dtype: torch.dtype) -> bool:
    return dtype.itemsize > 1 or dtype == torch.float8_e5m2


# Gives the lines, and whether they need ULPs. level: of `cann`.
_Rule = Callable[[torch.dtype, str], tuple[str, bool]]


def _default_body(dtype: torch.dtype) -> str:
    wide = torch.finfo(dtype).eps < 2**-10
    alone, with_plain = ((64, 16), (16, 4)) if wide else ((4, 1), (2, 0.5))
    return _WITHIN + _DEFAULT.format(
        eps=torch.finfo(dtype).eps,
        alone_max=alone[0],
        alone_rms=alone[1],
        max_share=with_plain[0] / alone[0],
        rms_share=with_plain[1] / alone[1],
    )


def _default(dtype: torch.dtype, level: str) -> tuple[str, bool]:
    return _BY_SIZE + _default_body(dtype), True


def _torch(dtype: torch.dtype, level: str) -> tuple[str, bool]:
    eps = torch.finfo(dtype).eps
    relative, absolute = _TORCH.get(dtype, (eps, eps / 4))
    return (
        f"    over = int((d > {absolute!r} + {relative!r} * size).sum())\n"
        '    return "fail" if over else "pass", "over_tolerance", over, 0\n'
    ), False


def _ratio(dtype: torch.dtype, level: str) -> tuple[str, bool]:
    factor = "3" if dtype in (torch.float16, torch.bfloat16) else "(3 if len(a) < 1000 else 2)"
    return (
        "    if ulps.max() <= 0.5:\n"
        '        return "pass", "max_ulp", float(ulps.max()), 0.5\n'
        "    if not plain:\n"
        '        return "undecided", "plain_implementation", 0, 0\n'
        + _WITHIN
        + f"    most, usual = 2 * plain[0] + 1e-5, {factor} * plain[1] + 1e-5\n"
        "    if largest > most:\n"
        '        return "fail", "max_abs_ratio", largest, most\n'
        '    return "pass" if rms <= usual else "fail", "rms_ratio", rms, usual\n'
    ), True


def _cann(dtype: torch.dtype, level: str) -> tuple[str, bool]:
    threshold = _CANN.get(dtype, torch.finfo(dtype).eps)
    mare, mere, rms = {"L2": (2, 1.2, 1.2), "L1": (5, 1.5, 1.5)}.get(level, (10, 2, 2))
    return (
        "    relative = d / (size + 1e-7)\n"
        "    mine = float(relative.max()), float(relative.sum()) / n, math.sqrt(float(d.square().sum()) / n)\n"
        "    if plain is None:\n"
        f"        if mine[1] >= {threshold!r}:\n"
        f'            return "fail", "mere", mine[1], {threshold!r}\n'
        f'        return "pass" if mine[0] < {10 * threshold!r} else "fail", "mare", mine[0], {10 * threshold!r}\n'
        f"    p, q = {_elements('plain.to(output.dtype)', dtype)}, {_elements('golden', dtype)}\n"
        f"    both = p.isfinite() & (q.abs() <= {_range(dtype)[0]!r})\n"
        "    e, q = (p - q).abs().where(both, 0), q.abs().where(both, 0)\n"
        "    m, relative = max(int(both.sum()), 1), e / (q + 1e-7)\n"
        "    theirs = float(relative.max()), float(relative.sum()) / m, math.sqrt(float(e.square().sum()) / m)\n"
        "    ratios = [a and (a / b if b else math.inf) for a, b in zip(mine, theirs)]\n"
        f'    rules = ("mare_ratio", {mare}), ("mere_ratio", {mere}), ("rmse_ratio", {rms})\n'
        "    for ratio, (rule, limit) in zip(ratios, rules):\n"
        "        if not ratio <= limit:\n"
        '            return "fail", rule, ratio, limit\n'
        '    return "pass", rule, ratio, limit\n'
    ), False


_RULES: dict[str, _Rule] = {
    "default": _default,
    "torch": _torch,
    "fp64-ratio": _ratio,
    "cann": _cann,
}
POLICIES = frozenset(_RULES)

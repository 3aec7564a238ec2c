"""The result of a check for people, and as the csv that mindstudio-probe writes."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from msprobe.pytorch.compile_accuracy_checker._results import CHECKS, CompareResult, ModuleDiff, TensorDiff

COLUMNS = (
    "module_name", "check_type", "tensor_index", "status", "max_abs_diff", "mean_abs_diff", "max_rel_diff", "shape",
    "note",
)  # fmt: skip
_WIDTH = 72
_SECTIONS = {
    "FORWARD INPUT": ("fwd_input",),
    "FORWARD OUTPUT": ("fwd_output",),
    "BACKWARD": ("grad_input", "grad_output", "grad_parameter"),
}


def lines(result: CompareResult, *, with_inputs: bool) -> Iterator[str]:
    """What report() prints."""
    dtype = f"  cast_dtype={result.cast_dtype}" if result.cast_dtype else ""
    yield "=" * _WIDTH
    if math.isnan(result.loss_eager):
        yield f"  Loss  compiled={result.loss_compiled:.6f}  (single_pass, eager loss not computed){dtype}"
    else:
        yield (
            f"  Loss  eager={result.loss_eager:.6f}  compiled={result.loss_compiled:.6f}  "
            f"diff={result.loss_diff:.3e}{dtype}"
        )
    yield "=" * _WIDTH
    for title, checks in _SECTIONS.items():
        if title == "FORWARD INPUT" and not with_inputs:
            continue
        yield f"\n  {title}\n  {'-' * (_WIDTH - 4)}"
        for diff in result.diffs:
            if diff.note:
                yield _line("skip" if diff.skipped else "WARN", diff.name, diff.note)
                continue
            for check in checks:
                found = diff.of(check)
                if not found and check == "grad_parameter":  # which single_pass does not compare
                    continue
                flag = "none" if not found else "pass" if all(each.allclose for each in found) else "FAIL"
                name = diff.name if len(checks) == 1 else f"{diff.name}.{check}"
                yield _line(flag, name, " | ".join(map(str, found)) or "no tensor")
    yield f"\n{'=' * _WIDTH}"
    yield f"  RESULT: {'ALL PASS' if result.all_pass else 'FAILED'}  (tolerance by dtype)"
    yield "=" * _WIDTH
    if result.runs:
        yield f"  runs {result.runs['compiled']} and {result.runs['eager']} in {result.store}"


def write_csv(result: CompareResult, path: Path, *, with_inputs: bool) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerow(_loss_row(result))
        for diff in result.diffs:
            writer.writerows(_rows(diff, with_inputs))


def _loss_row(result: CompareResult) -> list[object]:
    status = "PASS" if result.all_pass else "FAIL"
    shown = f"compiled={result.loss_compiled:.6f}"
    if math.isnan(result.loss_eager):
        return ["LOSS", "loss", 0, status, "N/A", "N/A", "N/A", shown, "single_pass mode"]
    eager = f"eager={result.loss_eager:.6f}"
    return ["LOSS", "loss", 0, status, f"{result.loss_diff:.6e}", "N/A", "N/A", f"{eager} {shown}", ""]


def _rows(diff: ModuleDiff, with_inputs: bool) -> Iterator[list[object]]:
    if diff.note:
        yield [diff.name, "note", 0, "SKIP" if diff.skipped else "WARN", "", "", "", "", diff.note]
        return
    for check in CHECKS:
        if check != "fwd_input" or with_inputs:
            yield from ([diff.name, check, index, *_numbers(each)] for index, each in enumerate(diff.of(check)))


def _numbers(diff: TensorDiff) -> list[object]:
    status = "PASS" if diff.allclose else "FAIL"
    numbers = (f"{number:.6e}" for number in (diff.max_abs, diff.mean_abs, diff.max_rel))
    return [status, *numbers, str(diff.shape), diff.note]


def _line(flag: str, name: str, text: str) -> str:
    return f"  {flag:4s}  {name:52s}  {text}"

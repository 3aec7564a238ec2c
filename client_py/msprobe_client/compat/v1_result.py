"""Result tables of mindstudio-probe's 1.0 line: xlsx with coloured rows, made of the tables of version 26.

Columns, words and colour rules are those of 1.0.4; docs/compatibility.md names what differs.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe_client.compat.result_table import BENCH_STATISTICS, NPU_STATISTICS, Cell, ResultTable, number, typed
from msprobe_client.output.whole_file import whole_file
from msprobe_client.output.xlsx_rows import COLOURS, put, workbook

_NAMES = ("NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape")
_DIFFERENCES = ("Max diff", "Min diff", "Mean diff", "L2norm diff")
_RELATIVE = ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr")
_METRICS = ("Cosine", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")
_STATISTICS = (*NPU_STATISTICS, *BENCH_STATISTICS)

# In 1.0.4 a row has a warning if a statistic differs by more than half of the larger one.
_MAGNITUDE = 0.5
_COSINE, _COSINE_MIN, _COSINE_SAME = 0.99, 0.9, 0.99999
_MAX_ABS, _MAX_ABS_LIMIT = 0.001, 1
_FAR_APART = 1e10

_ADVICE = {
    "input": "The first difference is in what goes in: look at what made it, and for calls that change it in place.",
    "output": "What goes in agrees and what comes out does not: look at how this operation computes.",
}


@dataclass(slots=True)
class V1Row:
    cells: dict[str, Cell]
    is_input: bool  # parameters are neither
    is_output: bool
    failed: bool  # searched by the advice
    colour: str = ""


class V1Result:
    """A table's form, for TableFiles. advice: an advisor_{time}.txt beside each table."""

    def __init__(self, *, stacks: bool, advice: bool) -> None:
        self._stacks = stacks
        self._advice = advice

    def write(self, table: Path, target: Path) -> None:
        found = ResultTable.open(table)
        header = _header(found, self._stacks)
        first: tuple[int, V1Row] | None = None
        with whole_file(target) as scratch, workbook(str(scratch)) as book:
            fills = {name: book.add_format({"bg_color": colour, "pattern": 1}) for name, colour in COLOURS.items()}
            sheet = book.add_worksheet("Sheet")
            for column, name in enumerate(header):
                sheet.write_string(0, column, name)
            for at, row in enumerate(v1_rows(found)):
                if first is None and row.failed:
                    first = (at, row)
                for column, name in enumerate(header):
                    put(sheet, at + 1, column, _shown(row.cells[name]), fills.get(row.colour))
        if self._advice:
            _advise(target, first)


def v1_rows(table: ResultTable) -> Iterator[V1Row]:
    """Rows as 1.0 has them, coloured; in the order of the table."""
    make = _content_row if table.has_contents else _checksum_row if table.has_checksums else _statistics_row
    for _, group in itertools.groupby(_named(table), key=lambda cells: _record(cells["NPU Name"])):
        rows = [_row(cells, make) for cells in group]
        if not table.has_checksums:
            _colour(rows, "MaxAbsErr" if table.has_contents else "Max diff")
        yield from rows


def _header(table: ResultTable, stacks: bool) -> list[str]:
    if table.has_checksums:
        names = [*_NAMES, "NPU MD5", "BENCH MD5", "Result"]
    elif table.has_contents:
        names = [*_NAMES, *_METRICS, *_STATISTICS, "Accuracy Reached or Not", "Err_message"]
    else:
        names = [*_NAMES, *_DIFFERENCES, *_RELATIVE, *_STATISTICS, "Result", "Err_message"]
    names += ["NPU_Stack_Info"] * stacks
    return names + ["Data_name"] * table.has_contents


def _named(table: ResultTable) -> Iterator[dict[str, str]]:
    for texts in table.texts():
        yield dict(zip(table.header, texts, strict=True))


def _record(name: str) -> str:
    for part in (".input", ".output", ".parameters"):
        at = name.find(part)
        if at >= 0:
            return name[:at]
    return name


def _row(texts: dict[str, str], make: Any) -> V1Row:
    matched = texts["Bench Name"] != "N/A"
    cells: dict[str, Cell] = {name: _none(texts[name]) if matched else texts[name] for name in _NAMES}
    cells["NPU Name"] = _v1_name(texts["NPU Name"])
    if matched:
        cells["Bench Name"] = _v1_name(texts["Bench Name"])
    stack = texts.get("NPU_Stack_Info", "N/A")
    cells["NPU_Stack_Info"] = "None" if stack == "N/A" else stack
    more, failed = make(texts, matched)
    name = texts["NPU Name"]
    return V1Row({**cells, **more}, ".input" in name, ".output" in name, failed)


def _v1_name(name: str) -> str:
    """In 1.0 a keyword argument is a list of one."""
    last = name.rpartition(".")[2]
    return name if last.isdecimal() or ".parameters" in name else f"{name}.0"


def _statistics_row(texts: dict[str, str], matched: bool) -> tuple[dict[str, Cell], bool]:
    cells: dict[str, Cell] = {name: _statistic(texts, name) for name in _STATISTICS}
    if not matched:
        absent = dict.fromkeys((*_DIFFERENCES, *_RELATIVE), "N/A")
        return {**cells, **absent, "Result": "N/A", "Err_message": "No bench data matched."}, False
    warned = False
    for npu, bench, difference, relative in zip(NPU_STATISTICS, BENCH_STATISTICS, _DIFFERENCES, _RELATIVE, strict=True):
        a, b = cells[npu], cells[bench]
        if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
            cells[difference], cells[relative] = "None", " "
            continue
        apart = a - b
        cells[difference] = apart
        cells[relative] = f"{abs(apart / b * 100)}%" if b != 0 else "N/A"
        warned = warned or abs(apart) / (max(abs(a), abs(b)) + 1e-10) > _MAGNITUDE
    cells["Result"] = "Warning" if warned else ""
    cells["Err_message"] = "Need double check api accuracy." if warned else ""
    return cells, warned


def _content_row(texts: dict[str, str], matched: bool) -> tuple[dict[str, Cell], bool]:
    cells: dict[str, Cell] = {name: _statistic(texts, name) for name in _STATISTICS}
    files = ast.literal_eval(texts["Data_name"]) if texts["Data_name"].startswith("[") else [texts["Data_name"]]
    cells["Data_name"] = str(files[0])
    message = "" if matched else "No bench data matched."
    zero_dimensional = False
    if not matched or files[0] == "-1" or (files[-1] == "-1" and len(files) > 1):
        metrics: dict[str, Cell] = dict.fromkeys(_METRICS, "None")
        message = "No bench data matched."
    elif all(texts[name] == "unsupported" for name in _METRICS):
        metrics = dict.fromkeys(_METRICS, "None")
        message = f"Dump file: {files[0]} not found."
    else:
        metrics = {name: typed(texts[name]) for name in _METRICS}
        cosine = metrics["Cosine"]
        if isinstance(cosine, float) and cosine > _COSINE_SAME:
            metrics["Cosine"] = 1.0
        zero_dimensional = metrics["Cosine"] == "unsupported" and isinstance(metrics["MaxAbsErr"], int | float)
        if zero_dimensional:
            message = "This is type of scalar data, can not compare."
            metrics["One Thousandth Err Ratio"] = metrics["Five Thousandths Err Ratio"] = "Nan"
        elif metrics["Cosine"] == "shape unmatched":
            message = "Shape of NPU and bench Tensor do not match. Skipped."
        elif metrics["Cosine"] == "N/A":
            message = "The position of inf or nan in NPU and bench Tensor do not match."
        elif texts["NPU Dtype"] != texts["Bench Dtype"]:
            message = "Dtype of NPU and bench Tensor do not match."
    cells["Accuracy Reached or Not"] = _accuracy(metrics["Cosine"], metrics["MaxAbsErr"])
    cells["Err_message"] = message
    return {**cells, **metrics}, cells["Accuracy Reached or Not"] == "No"


def _checksum_row(texts: dict[str, str], matched: bool) -> tuple[dict[str, Cell], bool]:
    if not matched:
        return dict.fromkeys(("NPU MD5", "BENCH MD5", "Result"), "N/A"), False
    checksums = {
        name: _none("" if texts[dtype].startswith("<class") else texts[name])
        for name, dtype in (("NPU MD5", "NPU Dtype"), ("BENCH MD5", "Bench Dtype"))
    }
    same = checksums["NPU MD5"] == checksums["BENCH MD5"]
    return {**checksums, "Result": "pass" if same else "Different"}, not same


def _accuracy(cosine: Cell, max_abs: Cell) -> str:
    if cosine == "shape unmatched":
        return "Unmatched"
    if "N/A" in (cosine, max_abs):
        return "No"
    if not isinstance(cosine, int | float) or not isinstance(max_abs, int | float):
        return "None"
    far = (cosine < _COSINE and max_abs > _MAX_ABS) or cosine < _COSINE_MIN or max_abs > _MAX_ABS_LIMIT
    return "No" if far else "Yes"


def _statistic(texts: dict[str, str], name: str) -> Cell:
    text = texts[name]
    dtype = texts["NPU Dtype" if name.startswith("NPU") else "Bench Dtype"]
    if dtype == "<class 'str'>" or text == "N/A":
        return text
    found = number(text)
    return found if found is not None else typed(_none(text))


def _none(text: str) -> str:
    return "None" if text in ("N/A", "") else "<class 'str'>" if text == "ellipsis" else text


def _shown(value: Cell) -> Cell:
    """A text that no spreadsheet takes for a number ends with a tab in 1.0."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}\t"
    return value


def _colour(rows: Sequence[V1Row], apart: str) -> None:
    for row in rows:
        difference = row.cells[apart]
        overflown = any(_is_overflown(row.cells[name]) for name in ("NPU max", "NPU min"))
        if overflown or (isinstance(difference, int | float) and difference > _FAR_APART and _is_finite(difference)):
            row.colour = "bad"
    inputs = [row for row in rows if row.is_input and _is_judged(row, apart)]
    for row in rows:
        if row.is_output and not row.colour and _is_judged(row, apart):
            row.colour = _worst(_grown(each, row, apart) for each in inputs)


def _is_judged(row: V1Row, apart: str) -> bool:
    return all(_is_finite(row.cells[name]) for name in ("NPU max", "Bench max", apart))


def _worst(colours: Iterable[str]) -> str:
    found = set(colours)
    return "bad" if "bad" in found else "doubtful" if "doubtful" in found else ""


def _grown(given: V1Row, made: V1Row, apart: str) -> str:
    """How much more an output differs than an input."""
    before, after = _value(given, apart), _value(made, apart)
    colour = ""
    if abs(before) <= abs(after) and _magnitude(after) - _magnitude(before) >= 1:
        colour = "doubtful"
    if apart == "Max diff":
        relative = [abs(_value(row, apart) / max(0.01, _value(row, "Bench max"))) for row in (given, made)]
        if relative[1] > 0.5:
            return "bad"
        return "doubtful" if relative[1] > 0.1 and relative[0] < 0.01 else colour
    thousandth = [row.cells["One Thousandth Err Ratio"] for row in (given, made)]
    if all(map(_is_finite, thousandth)):
        old, new = (_value(row, "One Thousandth Err Ratio") for row in (given, made))
        if old > 0.9 and new < 0.6:
            return "bad"
        colour = "doubtful" if old - new > 0.1 else colour
    if all(_is_finite(row.cells["Cosine"]) for row in (given, made)):
        colour = "doubtful" if _value(given, "Cosine") - _value(made, "Cosine") > 0.1 else colour
    return colour


def _magnitude(value: float) -> float:
    return 0 if abs(value) < 1 else math.log10(abs(value))


def _is_overflown(value: Cell) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _is_finite(value: Cell) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _value(row: V1Row, name: str) -> float:
    value = row.cells[name]
    assert isinstance(value, int | float)
    return value


def _advise(target: Path, first: tuple[int, V1Row] | None) -> None:
    """advisor_{time}.txt, of the same time as the table."""
    time = target.stem.rpartition("_")[2]
    lines = ["Line: NA", "Suspect Nodes: NA", "Expert Advice: Nothing in the table is beyond its limits."]
    if first is not None:
        at, row = first
        advice = _ADVICE["output" if row.is_output else "input"]
        lines = [f"Line: {at}", f"Suspect Nodes: {row.cells['NPU Name']}", f"Expert Advice: {advice}"]
    with whole_file(target.with_name(f"advisor_{time}.txt")) as scratch:
        scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")

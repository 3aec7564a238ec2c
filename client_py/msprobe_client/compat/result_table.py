"""Reads the result tables of mindstudio-probe's form as the server writes them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Cell: TypeAlias = str | int | float | bool | None

NPU_STATISTICS = ("NPU max", "NPU min", "NPU mean", "NPU l2norm")
BENCH_STATISTICS = ("Bench max", "Bench min", "Bench mean", "Bench l2norm")
# Only tables of contents have these as numbers; MaxRelativeErr of statistics is a text with %.
CONTENT_METRICS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
_ARGUMENT = "<class "
_TEXT = "<class 'str'>"
_WORDS = {" inf": "inf", " -inf": "-inf"}


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table's header, and its rows as typed cells: a cell is a number if a spreadsheet shows one."""

    path: Path
    header: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> ResultTable:
        with path.open(encoding="utf-8", newline="") as file:
            return cls(path, tuple(next(csv.reader(file))))

    @property
    def has_contents(self) -> bool:
        return "Cosine" in self.header

    @property
    def has_checksums(self) -> bool:
        return "NPU MD5" in self.header

    def texts(self) -> Iterator[list[str]]:
        """Cells as texts."""
        with self.path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            next(reader)
            yield from reader

    def rows(self, *, truths: bool = True) -> Iterator[list[Cell]]:
        """truths: truth values of arguments are values; otherwise they are texts, as are those of tensors of bool."""
        header = self.header
        npu_dtype, bench_dtype = header.index("NPU Dtype"), header.index("Bench Dtype")
        numbers = [(index, -1) for index, name in enumerate(header) if self.has_contents and name in CONTENT_METRICS]
        numbers += [(header.index(name), npu_dtype) for name in NPU_STATISTICS if name in header]
        numbers += [(header.index(name), bench_dtype) for name in BENCH_STATISTICS if name in header]
        consistent = header.index("Requires_grad Consistent") if "Requires_grad Consistent" in header else -1
        for texts in self.texts():
            cells: list[Cell] = [_WORDS.get(text, text) for text in texts]
            for index, dtype in numbers:
                if dtype < 0 or texts[dtype] != _TEXT:
                    value = typed(str(cells[index]))
                    truth = isinstance(value, bool) and not (truths and texts[dtype].startswith(_ARGUMENT))
                    cells[index] = str(value) if truth else value
            if consistent >= 0:
                cells[consistent] = typed(texts[consistent])
            yield cells


def typed(text: str) -> Cell:
    """A number or truth value where the text spells one."""
    if text in ("True", "False"):
        return text == "True"
    if not text or text[0] not in "0123456789-" or text == "-1":
        return int(text) if text == "-1" else text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        found = float(text)
    except ValueError:
        return text
    return found if math.isfinite(found) else text


def number(text: str) -> float | int | None:
    """The number that a cell's text spells, with NaN and infinities; None: it spells none."""
    word = {"Nan": "nan"}.get(text, text).strip()
    if word in ("nan", "inf", "-inf"):
        return float(word)
    found = typed(word)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None

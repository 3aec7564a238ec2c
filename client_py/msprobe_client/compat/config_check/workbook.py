"""result.xlsx: a summary, and a sheet for each part that both packs have."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msprobe_client.compat.config_check import environment_sheet, hyperparameters_sheet, packages_sheet, random_sheet
from msprobe_client.compat.config_check.pack import Pack, opened
from msprobe_client.compat.config_check.sheet import PASS, Sheet
from msprobe_client.compat.config_check.tensors_sheet import dataset_sheet, weights_sheet
from msprobe_client.errors import DataError
from msprobe_client.output.whole_file import whole_file
from msprobe_client.output.xlsx_rows import SHEET_ROWS, put, workbook

# In the order of the workbook.
SHEETS: tuple[Callable[[Pack, Pack], Sheet | None], ...] = (
    environment_sheet.sheet,
    packages_sheet.sheet,
    dataset_sheet,
    weights_sheet,
    hyperparameters_sheet.sheet,
    random_sheet.sheet,
)


def compare_packs(bench_path: Path, cmp_path: Path, target: Path) -> Sheet:
    """Writes the workbook; its summary."""
    with opened(bench_path) as bench, opened(cmp_path) as cmp:
        sheets = [found for make in SHEETS if (found := make(bench, cmp)) is not None]
    if not sheets:
        raise DataError(f"{bench_path} and {cmp_path} share no part; a pack of config_check -d has env and pip")
    summary = Sheet("summary", ("filename", "pass_check"), [[each.name, each.verdict] for each in sheets], PASS)
    with whole_file(target) as scratch, workbook(str(scratch)) as book:
        bold = book.add_format({"bold": True})
        for each in (summary, *sheets):
            _write(book, each, bold)
    return summary


def _write(book: Any, sheet: Sheet, bold: Any) -> None:
    most = SHEET_ROWS - 1
    parts = max(1, -(-len(sheet.rows) // most))
    for part in range(parts):
        to = book.add_worksheet(sheet.name if parts == 1 else f"{sheet.name}_part_{part}")
        for column, name in enumerate(sheet.columns):
            to.write_string(0, column, name, bold)
        for at, row in enumerate(sheet.rows[part * most : (part + 1) * most], 1):
            for column, value in enumerate(row):
                put(to, at, column, _cell(value), None)


def _cell(value: Any) -> Any:
    """Lists and mappings as Python writes them; nothing for NaN."""
    if isinstance(value, (list, dict)):
        return str(value)
    return None if isinstance(value, float) and math.isnan(value) else value

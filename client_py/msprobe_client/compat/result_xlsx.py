"""Result tables of mindstudio-probe's form as xlsx: as `msprobe compare --xlsx` of mindstudio-probe 26.2.0 has them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msprobe_client.compat.result_table import ResultTable
from msprobe_client.output.whole_file import whole_file
from msprobe_client.output.xlsx_rows import COLOURS, put, workbook

# Rows of a sheet; longer tables are divided evenly into sheets part_0, part_1, ...
SHEET_ROWS = 1048500


class TableForm(Protocol):
    """A form for the tables that the server writes as csv."""

    def write(self, table: Path, target: Path) -> None:
        """Makes target, whole or not at all."""


class ResultXlsx:
    """Cells as in mindstudio-probe's workbooks, without colours. coloured: rows by their Result. training: tables of a
    training step against inference, in which truth values of arguments are texts, and a cell with several names has a
    line for each.
    """

    def __init__(self, *, coloured: bool, training: bool = False) -> None:
        self._coloured = coloured
        self._training = training

    def write(self, table: Path, target: Path) -> None:
        found = ResultTable.open(table)
        sheets = 1
        if table.stat().st_size > SHEET_ROWS:  # a row is longer than a byte
            sheets = -(-sum(1 for _ in found.texts()) // (SHEET_ROWS - 1)) or 1
        with whole_file(target) as scratch:
            self._write(found, scratch, sheets)

    def _write(self, table: ResultTable, scratch: Path, sheets: int) -> None:
        with workbook(str(scratch)) as book:
            fills = {
                result: book.add_format({"bg_color": COLOURS[name], "pattern": 1})
                for result, name in (("error", "bad"), ("warning", "doubtful"))
            }
            result = table.header.index("Result")
            rows = table.rows(truths=not self._training)
            total = sum(1 for _ in table.texts()) if sheets > 1 else 0
            for number in range(sheets):
                sheet = book.add_worksheet("Sheet1" if sheets == 1 else f"part_{number}")
                for column, name in enumerate(table.header):
                    sheet.write_string(0, column, name)
                max_rows = -(-total // sheets) if sheets > 1 else SHEET_ROWS
                for at, cells in zip(range(1, max_rows + 1), rows, strict=False):
                    fill = fills.get(str(cells[result])) if self._coloured else None
                    if self._training:
                        cells[:2] = [str(name).replace(";  ", ";\n") for name in cells[:2]]
                    for column, value in enumerate(cells):
                        put(sheet, at, column, value, fill)

"""One sheet of an Excel workbook, rows coloured as marked. Rows go to a temporary file, so memory stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from msprobe_client.output import Column, Ending, Marker, Row
from msprobe_client.output.csv_rows import cell
from msprobe_client.output.extras import extra
from msprobe_client.scratch import scratch_directory

# Colours of solid fills, as in mindstudio-probe's 1.0 line.
COLOURS = {"bad": "#FF0000", "doubtful": "#FFFF00"}
# Excel's own limits.
SHEET_ROWS = 1048576
CELL_CHARACTERS = 32767


def write(
    columns: Sequence[Column], rows: Iterable[Row], to: BinaryIO, mark: Marker, ending: Callable[[], Ending]
) -> None:
    del ending
    with workbook(to) as book:
        fills = {name: book.add_format({"bg_color": colour, "pattern": 1}) for name, colour in COLOURS.items()}
        bold = book.add_format({"bold": True})
        sheet = None
        at = SHEET_ROWS
        for row in rows:
            if at == SHEET_ROWS:
                sheet, at = _sheet(book, columns, bold), 1
            fill = fills.get(mark(row))
            for index, column in enumerate(columns):
                put(sheet, at, index, row[column.name], fill)
            at += 1
        if sheet is None:
            _sheet(book, columns, bold)


@contextmanager
def workbook(to: str | BinaryIO) -> Iterator[Any]:
    """An XlsxWriter workbook that is written when the context is left without an exception, and leaves nothing else."""
    xlsxwriter = extra("xlsxwriter", "xlsx")
    with scratch_directory() as scratch:
        book = xlsxwriter.Workbook(to, {"constant_memory": True, "tmpdir": scratch})
        yield book
        book.close()


def put(sheet: Any, row: int, column: int, value: Any, fill: Any) -> None:
    """Numbers and truth values as such; everything else, and numbers that Excel lacks, as text."""
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value, fill)
    elif isinstance(value, int | float) and abs(value) <= 1.7e308:
        sheet.write_number(row, column, value, fill)
    elif value is None or value == "":
        sheet.write_blank(row, column, None, fill)
    else:
        sheet.write_string(row, column, cell(value)[:CELL_CHARACTERS], fill)


def _sheet(book: Any, columns: Sequence[Column], bold: Any) -> Any:
    sheet = book.add_worksheet()
    sheet.freeze_panes(1, 0)
    for index, column in enumerate(columns):
        sheet.write_string(0, index, column.name, bold)
    return sheet

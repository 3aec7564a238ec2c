"""Answers as xlsx, Parquet and coloured tables, and on a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet
import pytest
from conftest import Run
from test_compare import binary, call, compare, dump, tensor  # noqa: F401

from msprobe_client.errors import DataError
from msprobe_client.model import Rank
from msprobe_client.output import Column, Ending, Format, Mark, Row, show, write

COLUMNS = (Column("name", "NAME"), Column("rank", "RANK"), Column("value", "VALUE", kind="float"), Column("all", "ALL"))
ROWS: list[dict[str, Any]] = [
    {"name": "a", "rank": Rank("rank", 3), "value": 1, "all": [1, 2]},
    {"name": "=b()", "rank": Rank("proc", 9), "value": float("inf"), "all": {"x": None}},
    {"name": None, "rank": Rank("rank", 0), "value": float("nan"), "all": None},
]


def mark(row: Row) -> Mark:
    return {"a": "bad", "=b()": "doubtful"}.get(row["name"], "")  # type: ignore[return-value]


def test_xlsx_has_typed_cells_and_coloured_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.xlsx"
    write(Format.xlsx, COLUMNS, iter(ROWS), path, mark)
    sheet = openpyxl.load_workbook(path).active
    assert sheet is not None
    assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
        ["name", "rank", "value", "all"],
        ["a", "rank3", 1, "1 2"],
        ["=b()", "proc9", "Infinity", "{'x': None}"],  # a text, no formula
        [None, "rank0", "NaN", None],
    ]
    assert sheet["A3"].data_type == "s"
    assert [sheet.cell(row, 1).fill.fgColor.rgb for row in (2, 3, 4)] == ["FFFF0000", "FFFFFF00", "00000000"]
    assert list(path.parent.iterdir()) == [path]


def test_parquet_has_typed_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write(Format.parquet, COLUMNS, iter(ROWS), path)
    table = pyarrow.parquet.read_table(path)
    assert [str(field.type) for field in table.schema] == ["string", "string", "double", "string"]
    assert table["rank"].to_pylist() == ["rank3", "proc9", "rank0"]
    assert table["value"].to_pylist()[:2] == [1.0, float("inf")]
    assert table["all"].to_pylist() == ["[1, 2]", '{"x": null}', None]
    empty = tmp_path / "empty.parquet"
    write(Format.parquet, COLUMNS, iter(()), empty)
    assert pyarrow.parquet.read_table(empty).num_rows == 0


def test_parquet_grows_by_groups_with_one_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msprobe_client.output.parquet_rows.GROUP", 2)
    path = tmp_path / "rows.parquet"
    later = {"name": "late", "rank": Rank("rank", 1), "value": 2.5, "all": None}
    write(Format.parquet, COLUMNS, iter([ROWS[0], ROWS[0], later]), path)
    file = pyarrow.parquet.ParquetFile(path)
    assert (file.num_row_groups, file.read()["value"].to_pylist()) == (2, [1.0, 1.0, 2.5])


def test_long_texts_and_many_rows_fit_into_excel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msprobe_client.output.xlsx_rows.SHEET_ROWS", 3)
    path = tmp_path / "rows.xlsx"
    write(Format.xlsx, COLUMNS, ({**ROWS[0], "name": "x" * 40000} for _ in range(5)), path)
    book = openpyxl.load_workbook(path)
    assert [sheet.max_row for sheet in book.worksheets] == [3, 3, 2]
    assert len(str(book.worksheets[0]["A2"].value)) == 32767


def test_a_failure_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    def rows() -> Any:
        yield ROWS[0]
        raise KeyboardInterrupt

    for chosen in Format:
        with pytest.raises(KeyboardInterrupt):
            write(chosen, COLUMNS, rows(), tmp_path / f"rows.{chosen.value}")
    assert list(tmp_path.iterdir()) == [temporary] and list(temporary.iterdir()) == []


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    for target, named in (
        (tmp_path, tmp_path),
        *((Path(f"{each}/rows.csv"), each) for each in ("/proc/none", "/dev/null")),
    ):
        with pytest.raises(DataError, match=f"{named} cannot be written"):
            write(Format.csv, COLUMNS, iter(ROWS), target)


def test_csv_safe_has_no_formulas_and_csv_what_was_sent() -> None:
    columns = [Column(name, name) for name in ("name", "value", "list")]
    names = ['=HYPERLINK("//evil")', "+1", "-1", "@a", "\t=b", "\n=c", " =d", "\xa0=e", "\uff1df", "a=b", "'d", ""]
    rows: list[dict[str, Any]] = [{"name": name, "value": -1.5, "list": ["=x", 1]} for name in names]
    rows.append({"name": None, "value": float("-inf"), "list": [-1, 2]})
    rows.append({"name": "nothing", "value": None, "list": None})
    out = {chosen: io.StringIO(newline="") for chosen in (Format.csv, Format.csv_safe)}
    for chosen, stream in out.items():
        write(chosen, columns, iter(rows), stream)
        stream.seek(0)
    sent, safe = (list(csv.reader(stream)) for stream in out.values())
    assert [row[0] for row in sent[1:-1]] == [*names, ""]
    assert sent[-1] == safe.pop() == ["nothing", "", ""]
    quoted = [
        '\'=HYPERLINK("//evil")',
        "'+1",
        "'-1",
        "'@a",
        "\\t=b",
        "\\n=c",
        "' =d",
        "'\xa0=e",
        "'\uff1df",
        "a=b",
        "'d",
        "",
    ]
    assert safe[1:] == [*([name, "-1.5", "'=x 1"] for name in quoted), ["", "'-Infinity", "'-1 2"]]


def test_what_stands_on_stderr_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    write(Format.csv, COLUMNS, iter(()), io.StringIO(), ending=lambda: Ending(notes=["a\nb\x1b[2J\u202ec"]))
    assert capsys.readouterr().err == "a\\nb\\x1b[2J\\u202ec\n"


def test_a_table_on_a_terminal_is_coloured_by_row() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    to = Terminal()
    write(Format.table, COLUMNS, iter(ROWS), to, mark)
    assert [line[:5] for line in to.getvalue().splitlines()] == ["\x1b[1mN", "\x1b[31m", "\x1b[33m", "      "[:5]]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    a = {f"Torch.f.{i}.forward": call(tensor(1.0 + i), tensor(2.0)) for i in range(3)}
    b = {f"Torch.f.{i}.forward": call(tensor(1.0), tensor(2.0)) for i in range(3)}
    return dump(tmp_path / "a", a), dump(tmp_path / "b", b)


def test_compare_writes_every_format(compare: Run, sides: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    rows = {}
    for chosen in Format:
        path = tmp_path / f"out.{chosen.value}"
        result = compare(*sides, "--all", "--format", chosen.value, "--output", path)
        assert result.returncode == 1, result.stderr
        assert "first difference in order of execution: Torch.f.1.forward.output.0" in result.stderr
        rows[chosen] = path
    sheet = openpyxl.load_workbook(rows[Format.xlsx]).active
    assert sheet is not None
    table = pyarrow.parquet.read_table(rows[Format.parquet])
    assert sheet.max_row == 1 + table.num_rows == 7
    assert [cell.value for cell in sheet[1]] == table.column_names
    assert {(row[0].value, row[0].fill.fgColor.rgb) for row in sheet.iter_rows(min_row=2)} == {
        ("differs", "FFFF0000"),
        ("equal", "00000000"),
    }
    answer = json.loads(rows[Format.json].read_text())
    assert [row["name"] for row in answer["rows"]] == table["name"].to_pylist()
    assert answer["summary"]["rows"] == table.num_rows


def test_a_table_has_the_most_significant_of_all_ranks_first(compare: Run, tmp_path: Path) -> None:  # noqa: F811
    for side, scale in (("a", 1.0), ("b", 0.0)):
        for rank, by in ((0, 1.0), (1, 100.0), (2, 10.0)):
            data = {"Torch.f.0.forward": call(tensor(1.0 + scale * by))}
            dump(tmp_path / side / "step0" / f"rank{rank}", data)
    result = compare(tmp_path / "a", tmp_path / "b", "--limit", "2")
    assert [line.split()[3] for line in result.stdout.splitlines()[1:3]] == ["rank1", "rank2"]
    assert "the worst 2 are shown; --limit 0 shows all" in result.stdout


def on_a_terminal(*arguments: str, **environment: str) -> tuple[int, str]:
    """The command with a terminal for stdout; everything it wrote."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "msprobe_client", *arguments],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            written += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    return process.wait(60), written.decode()


def test_a_terminal_gets_colours_a_summary_and_no_binary(
    binary: str,  # noqa: F811
    sides: tuple[Path, Path],
) -> None:
    a, b = map(str, sides)
    code, written = on_a_terminal("compare", a, b, MSPROBE_SERVER_BINARY=binary)
    assert code == 1
    assert "\x1b[31mdiffers  Torch.f.2" in written  # a row
    assert "\x1b[31mdiffers\x1b[0m" in written and "\x1b[31m\u2588" in written  # of the summary
    code, written = on_a_terminal("compare", a, b, "--format", "xlsx", MSPROBE_SERVER_BINARY=binary)
    assert code == 3 and "xlsx is not for a terminal" in written


def test_a_missing_library_is_one_line(binary: str, sides: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "blocked").mkdir()
    for name in ("pyarrow", "xlsxwriter"):
        (tmp_path / "blocked" / f"{name}.py").write_text("raise ImportError\n")
    path = os.pathsep.join([str(tmp_path / "blocked"), os.environ.get("PYTHONPATH", "")])
    for chosen in ("parquet", "xlsx"):
        result = subprocess.run(
            [sys.executable, "-m", "msprobe_client", "compare", *map(str, sides), "--format", chosen],
            env={**os.environ, "PYTHONPATH": path, "MSPROBE_SERVER_BINARY": binary},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 3 and result.stderr.count("\n") == 1
        assert f"pip install 'msprobe-client[{chosen}]'" in result.stderr


def test_a_stack_begins_with_the_first_frame_that_is_not_torch_s() -> None:
    torch = (
        "File /env/lib/python3.11/site-packages/torch/nn/modules/linear.py, line 134, in forward, \n return F.linear()"
    )
    ours = "File /home/me/train.py, line 12, in forward, \n return self.layer(x)"
    assert show.stack([torch, torch, ours, torch]) == [" ".join(line.split()) for line in (ours, torch)]
    assert show.stack([torch]) == [" ".join(torch.split())]
    assert show.stack([]) == []
    assert show.stack([ours] * 11)[-2:] == [" ".join(ours.split()), "... and 3 more; --format json has all"]

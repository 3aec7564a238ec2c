"""msprobe merge_result: chosen metrics of chosen APIs of several ranks' results in one workbook."""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from msprobe_client.compat.compare_command import guarded
from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.examples import plain
from msprobe_client.given_file import yaml_of

_NAME = re.compile(r"compare_result_rank(?P<rank>\d+)(?:-rank(?P=rank))?_\d{14}\.xlsx")
_SINGLE = re.compile(r"compare_result_(rank|rank-rank)_\d{14}\.xlsx")
_STATISTICS = (
    ("Max diff", "Min diff", "Mean diff", "L2norm diff"),
    ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"),
)
_CONTENTS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
_GRADIENT = "Requires_grad Consistent"
_MAXIMA = ("NPU max", "Bench max")
# For these metrics the largest elements of both sides are shown instead.
_EMPTY = ("N/A", "unsupported", "Nan")


@dataclass(frozen=True, slots=True)
class RankResult:
    """The chosen tensors in one rank's workbook: name -> metric -> cell."""

    rank: int
    tensors: dict[str, dict[str, Any]]
    metrics: tuple[str, ...]


EXAMPLES = ("msprobe merge_result -i result -o merged -config apis.yaml",)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="msprobe merge_result",
        description="Merge compare_result_rank*.xlsx of several ranks into one workbook.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "-i", "--input_dir", required=True, metavar="DIR", help="with compare_result_rank{N}_{time}.xlsx"
    )
    found.add_argument("-o", "--output_dir", required=True, metavar="DIR", help="of multi_ranks_compare_merge_*.xlsx")
    found.add_argument(
        "-config", "--config-path", "--config_path", dest="config_path", required=True, metavar="YAML",
        help="{api: [...], compare_index: [...]}; without compare_index all metrics",
    )  # fmt: skip
    return found


def main(arguments: list[str]) -> NoReturn:
    given = parser().parse_args(arguments)
    guarded("msprobe merge_result", lambda: _merge(given))


def _merge(given: argparse.Namespace) -> None:
    files = _files(Path(given.input_dir))
    apis, wanted = _config(Path(given.config_path))
    results = [_read(rank, path, apis, wanted) for rank, path in sorted(files.items())]
    if not any(result.tensors for result in results):
        raise DataError(f"nothing to merge: none of {', '.join(apis)} is in the results of {given.input_dir}")
    path = _write(results, Path(given.output_dir))
    print(f"The compare results of the multi-ranks are merged and saved in: {path}.")


def _files(directory: Path) -> dict[int, Path]:
    if not directory.is_dir():
        raise InvalidArgument(f"{directory} is not a directory")
    found: dict[int, Path] = {}
    for path in sorted(directory.glob("*.xlsx")):
        match = _NAME.fullmatch(path.name)
        if match is None and not _SINGLE.fullmatch(path.name):
            raise InvalidArgument(
                f"{path.name} is not called compare_result_rank{{N}}_{{14 digits}}.xlsx; take it away"
            )
        if match is not None:
            found[int(match["rank"])] = path
    if len(found) < 2:
        raise InvalidArgument(
            f"{directory} has results of {len(found)} ranks; merging takes 2 or more (compare --xlsx)"
        )
    return found


def _config(path: Path) -> tuple[list[str], list[str]]:
    found = yaml_of(path)
    if not isinstance(found, dict) or not isinstance(found.get("api"), list) or not found["api"]:
        raise InvalidArgument(f'{path}: it has no list "api" of names, such as Distributed.all_reduce.0.forward')
    wanted = found.get("compare_index") or []
    if not isinstance(wanted, list):
        raise InvalidArgument(f"{path}: compare_index is not a list of columns")
    return [str(api) for api in found["api"]], [str(metric) for metric in wanted]


def _read(rank: int, path: Path, apis: list[str], wanted: list[str]) -> RankResult:
    from msprobe_client.output.extras import extra

    openpyxl = extra("openpyxl", "xlsx")
    try:
        book = openpyxl.load_workbook(path, read_only=True)
    except Exception as error:  # zip, XML and openpyxl's own
        raise DataError(f"{path.name} is not an xlsx file: {error}") from None
    tensors: dict[str, dict[str, Any]] = {}
    metrics: tuple[str, ...] = ()
    for sheet in book.worksheets:
        rows = sheet.iter_rows(values_only=True)
        header = [str(cell) for cell in next(rows, ())]
        metrics = _metrics(header, wanted, path)
        table = [dict(zip(header, row, strict=False)) for row in rows]
        for metric in metrics:
            _make_numbers(table, metric)
        for cells in table:
            name = str(cells["NPU Name"])
            if any(f"{api}." in name for api in apis):
                tensors.setdefault(name, {metric: _cell(cells, metric) for metric in metrics})
    book.close()
    ordered = {name: tensors[name] for api in apis for name in tensors if f"{api}." in name}
    return RankResult(rank, ordered, metrics)


def _metrics(header: list[str], wanted: list[str], path: Path) -> tuple[str, ...]:
    if "NPU MD5" in header:
        raise DataError(f"{path.name} compares checksums; there is nothing in it to merge")
    if "NPU Name" not in header:
        raise DataError(f"{path.name} is not a result of msprobe compare: it has no column NPU Name")
    known = [*(_CONTENTS if "Cosine" in header else sum(_STATISTICS, ())), _GRADIENT]
    for metric in wanted:
        if metric not in known:
            raise InvalidArgument(f"compare_index {metric!r} is not in {path.name}; it has {', '.join(known)}")
    return tuple(wanted or known)


def _make_numbers(table: list[dict[str, Any]], metric: str) -> None:
    """Makes numbers of a column in which every text spells one."""
    try:
        numbers = [float(cells[metric]) if isinstance(cells[metric], str) else cells[metric] for cells in table]
    except ValueError:
        return
    for cells, number in zip(table, numbers, strict=True):
        cells[metric] = number


def _cell(cells: dict[str, Any], metric: str) -> Any:
    value = cells[metric]
    if value in _EMPTY:
        return "NPU:{}  Bench:{}".format(*(cells[name] for name in _MAXIMA))
    return value


def _write(results: list[RankResult], output: Path) -> Path:
    from msprobe_client.output.whole_file import whole_file
    from msprobe_client.output.xlsx_rows import put, workbook

    path = output / f"multi_ranks_compare_merge_{time.strftime('%Y%m%d%H%M%S')}.xlsx"
    names = sorted({name for result in results for name in result.tensors})
    with whole_file(path) as scratch, workbook(str(scratch)) as book:
        for metric in results[0].metrics:
            sheet = book.add_worksheet(metric)
            for column, title in enumerate(["NPU Name", *(f"rank{result.rank}" for result in results)]):
                sheet.write_string(0, column, title)
            for at, name in enumerate(names, 1):
                sheet.write_string(at, 0, name)
                for column, result in enumerate(results, 1):
                    put(sheet, at, column, result.tensors.get(name, {}).get(metric), None)
    return path

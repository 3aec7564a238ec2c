"""msprobe api_precision_compare: whether one device is as near to the CPU as another, by the documented standards."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msprobe_client.compat.compare_command import guarded
from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.examples import plain
from msprobe_client.scratch import scratch_directory

if TYPE_CHECKING:
    from msprobe_client.compat.precision_standards import Judged

_COMMAND = "msprobe api_precision_compare"
_RESULT_COLUMNS = ("API Name", "Forward Test Success", "Backward Test Success", "Message")
_OUTPUT = re.compile(r"(?P<call>\w+\.[\w.]+\.\d+)\.(?P<direction>forward|backward)\.output\.[\w.]+")

EXAMPLES = ("msprobe api_precision_compare -npu npu_details.csv -gpu gpu_details.csv -o compared",)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Judge an NPU beside a GPU; writes api_precision_compare_result_*.csv and _details_*.csv.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for word in ("npu", "gpu"):
        what = f"accuracy_checking_details_*.csv of acc_check on the {word.upper()}"
        found.add_argument(f"-{word}", f"--{word}_csv_path", required=True, metavar="FILE", help=what)
    found.add_argument("-o", "--out_path", default="./", metavar="DIR", help="directory of the results (default ./)")
    return found


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 when the tables are written, whatever they say, as mindstudio-probe does."""
    given = parser().parse_args(arguments)
    guarded(_COMMAND, lambda: _compare(Path(given.npu_csv_path), Path(given.gpu_csv_path), Path(given.out_path)))


def _compare(npu: Path, gpu: Path, output: Path) -> None:
    from msprobe_client.check.standards import Standards
    from msprobe_client.client import Client
    from msprobe_client.compat.accuracy_tables import write_table
    from msprobe_client.compat.precision_standards import COLUMNS, cells_of, judge

    if output.exists() and not output.is_dir():
        raise InvalidArgument(f"-o {output} is not a directory")
    rows, others = _rows(npu), _rows(gpu)
    operations = {name: _operation(npu, name) for name in rows}
    details = []
    by_call: dict[str, dict[str, list[Judged]]] = {}
    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        standards = Standards(client)
        dtypes = {name: row["DEVICE Dtype"].strip().removeprefix("torch.") for name, row in rows.items()}
        standards.ask((operations[name], dtypes[name]) for name in rows)
        for name, row in rows.items():
            if name not in others:
                continue
            try:
                judged = judge(row, others[name], standards.of(operations[name], dtypes[name]))
            except ValueError as error:
                raise DataError(f"{npu} and {gpu}: row {name}: {error}") from None
            details.append(cells_of(name, judged))
            match = _OUTPUT.fullmatch(name)
            assert match is not None
            by_call.setdefault(match["call"], {"forward": [], "backward": []})[match["direction"]].append(judged)
    stamp = time.strftime("%Y%m%d%H%M%S")
    results = [_result(call, directions) for call, directions in by_call.items()]
    for word, columns, table in (("result", _RESULT_COLUMNS, results), ("details", COLUMNS, details)):
        path = output / f"api_precision_compare_{word}_{stamp}.csv"
        write_table(path, columns, table)
        print(f"The result file path is: {path}.")
    if missing := len(rows) - len(details):
        print(f"{_COMMAND}: {missing} rows of {npu} are not in {gpu} and were left out")


def _rows(path: Path) -> dict[str, dict[str, str]]:
    """By name of the output."""
    from msprobe_client.compat.accuracy_tables import DETAILS_COLUMNS, read_table

    found: dict[str, dict[str, str]] = {}
    for cells in read_table(path, DETAILS_COLUMNS):
        row = dict(zip(DETAILS_COLUMNS, cells, strict=True))
        if row["API Name"] in found:
            raise DataError(f"{path} has two rows {row['API Name']}")
        found[row["API Name"]] = row
    return found


def _operation(path: Path, name: str) -> str:
    match = _OUTPUT.fullmatch(name)
    if match is None:
        raise DataError(f"{path}: row {name!r} is no output such as Torch.mul.0.forward.output.0")
    return match["call"].split(".", 1)[1].rsplit(".", 1)[0]


def _result(call: str, directions: dict[str, list[Judged]]) -> list[str]:
    from msprobe_client.compat.accuracy_tables import SKIP, worst

    forward, backward = (worst(judged.status for judged in directions[word]) for word in ("forward", "backward"))
    reason = directions["forward"][-1].cells.get("Message", "") if forward == SKIP else ""
    return [call, forward, backward, str(reason)]

"""msprobe data2db: mindstudio-probe's command line for trend databases, over our server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from msprobe_client.compat.compare_command import guarded
from msprobe_client.errors import InvalidArgument
from msprobe_client.examples import plain
from msprobe_client.scratch import scratch_directory

_COMMAND = "msprobe data2db"
_MAX_PROCESSES = 128

EXAMPLES = (
    "msprobe data2db --data dump_a --db trends",
    "msprobe data2db --data monitor_output --db trends --format monitor --micro_step false",
)


def _processes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_PROCESSES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MAX_PROCESSES}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Write statistics by step, rank and tensor for TensorBoard's TrendVis: *_data.trend.db.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--db", required=True, metavar="DIR", help="directory of the result")
    found.add_argument("--data", required=True, metavar="DIR", help="a dump_path, or the output of a training monitor")
    found.add_argument(
        "--format", default="auto", choices=("auto", "dump", "monitor"), help="what the data are; auto: as files say"
    )
    found.add_argument("--mapping", metavar="JSON", help="texts in names, and what stands in their place")
    found.add_argument(
        "--micro_step",
        type=str.lower,
        default="true",
        choices=("true", "false"),
        help="count how often the model ran, or steps (default true)",
    )
    found.add_argument(
        "--process_num",
        type=_processes,
        default=1,
        metavar="N",
        help=f"1 to {_MAX_PROCESSES}; without effect: one process reads as fast as SQLite writes",
    )
    return found


def main(arguments: list[str]) -> NoReturn:
    given = parser().parse_args(arguments)
    guarded(_COMMAND, lambda: _write(given))


def _write(given: argparse.Namespace) -> None:
    from msprobe_client import name_mapping
    from msprobe_client.client import Client
    from msprobe_client.trend_file import kinds_in, trend_file

    data, output = Path(given.data), Path(given.db)
    if not data.is_dir():
        what = "is not a directory" if data.exists() else "does not exist"
        raise InvalidArgument(f"--data {data} {what}; name a dump_path, or the output of a training monitor")
    if output.exists() and not output.is_dir():
        raise InvalidArgument(f"--db {output} is not a directory")
    renames = name_mapping.renames(given.mapping) if given.mapping else ()
    kinds = kinds_in(data) if given.format == "auto" else [given.format]
    if not kinds:
        raise InvalidArgument(
            f"{data} holds neither a dump (step0/rank0/dump.json) nor files of a training monitor "
            "({time}-rank0-{id}/actv_0-0.csv, rank_0/module_step0-0.csv)"
        )
    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        for kind in kinds:
            report = client.trend_database(
                data.resolve(),
                trend_file(output / "", kind),
                monitor=kind == "monitor",
                micro_steps=given.micro_step == "true",
                renames=renames,
            )
            for text in report.warnings:
                print(f"{_COMMAND}: {text}")
            print(f"The result file path is: {report.path}.")

"""msprobe multi_acc_check: acc_check by several processes, into one pair of tables."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import NoReturn

from msprobe_client.compat import acc_check_command
from msprobe_client.compat.compare_command import guarded

_COMMAND = "msprobe multi_acc_check"
_MOST_PROCESSES = 64

EXAMPLES = ("msprobe multi_acc_check -api_info dump_a/step3/rank0/dump.json -o checked -n 2",)


def _processes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST_PROCESSES}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    found = acc_check_command.parser(_COMMAND, EXAMPLES)
    found.add_argument(
        *("-n", "--num_splits"),
        type=_processes,
        default=8,
        metavar="N",
        help=f"processes, 1 to {_MOST_PROCESSES} (default 8)",
    )
    return found


def main(arguments: list[str]) -> NoReturn:
    given = parser().parse_args(arguments)
    guarded(_COMMAND, lambda: _check(given))


def _check(given: argparse.Namespace) -> None:
    from msprobe_client.compat.check_processes import checked_by_processes
    from msprobe_client.output import progress

    check = acc_check_command.Prepared.of(given)
    with (
        acc_check_command.imported(check.dump, check.devices[0], check.framework) as (client, source),
        check.tables() as (tables, choice),
        progress.bar("check", "calls") as advance,
    ):
        with acc_check_command.calls_of(client, source) as calls:
            names = calls.chosen(choice)
        found = checked_by_processes(
            client.address,
            source,
            names,
            replace(choice, done=()),
            devices=check.devices,
            processes=given.num_splits,
            error_folder=check.error_folder,
        )
        for done, rows in enumerate(found, 1):
            tables.add(rows)
            advance(done, len(names))
    acc_check_command.report(tables.paths)

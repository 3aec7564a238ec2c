"""msprobe -f pytorch run_overflow_check: whether calls that gave NaN or infinity would do so anywhere."""

from __future__ import annotations

import argparse
from typing import NoReturn

from msprobe_client.compat import acc_check_command
from msprobe_client.compat.compare_command import guarded
from msprobe_client.examples import plain

_COMMAND = "msprobe run_overflow_check"
_MISMATCHES = ("nan_mismatches", "inf_mismatches", "inf_sign_mismatches")

EXAMPLES = ("msprobe -f pytorch run_overflow_check -api_info dump_a/step3/rank0/dump.json",)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Run every recorded call again; say which overflow on this device alone, and which anywhere.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument("-api_info", "--api_info_file", required=True, metavar="FILE", help="dump.json of one rank")
    found.add_argument("-j", "--jit_compile", action="store_true", help="compile operators; of an NPU alone")
    found.add_argument(
        *("-d", "--device"),
        nargs="+",
        type=acc_check_command.device_number,
        default=[0],
        metavar="N",
        help="device (default 0)",
    )
    return found


def main(arguments: list[str]) -> NoReturn:
    given = parser().parse_args(arguments)
    guarded(_COMMAND, lambda: _check(given))


def _check(given: argparse.Namespace) -> None:
    from msprobe_client.compat.replayed_calls import Choice, ReplayedCalls

    dump = acc_check_command.dump_of(given.api_info_file, ("pytorch",))
    device = acc_check_command.devices_of(given.device, jit_compile=given.jit_compile)[0]
    counts = {"a normal": 0, "an abnormal": 0}
    with acc_check_command.imported(dump, device) as (client, source), ReplayedCalls(client, source) as calls:
        for name in calls.chosen(Choice()):
            numbers = [row.accuracy for row in calls.checked(name)[0] if row.name.startswith(f"{name}.forward")]
            abnormal = any(each[key] for each in numbers if each for key in _MISMATCHES)
            if abnormal or any(each["non_finite_same"] for each in numbers if each):
                kind = "an abnormal" if abnormal else "a normal"
                counts[kind] += 1
                print(f"The {name} overflow is {kind} overflow.")
    print(f"{counts['a normal']} normal and {counts['an abnormal']} abnormal overflows.")

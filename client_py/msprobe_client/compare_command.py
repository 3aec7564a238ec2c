"""msprobe compare: the established tool's command line over our server. Without typer: it must start at once."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from msprobe_client.errors import MsprobeError
from msprobe_client.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE

# Options that need devices or graphs which this does not have, with what to use.
_MODES = ("auto", "offline_data", "torchair", "offline_model", "atb")
_ABSENT = {
    "cell_mapping": "-cm",
    "api_mapping": "-am",
    "data_mapping": "-dm",
    "layer_mapping": "-lm",
    "diff_analyze": "-da",
    "consistent_check": "--consistent_check",
    "config": "--config",
    "xlsx": "--xlsx",
}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="msprobe compare", description="Compare two dumps; writes compare_result_*.csv as mindstudio-probe does."
    )
    found.add_argument("-tp", "--target_path", required=True, help="dump.json, or a directory of one step")
    found.add_argument("-gp", "--golden_path", required=True, help="the same of the golden side")
    found.add_argument("-o", "--output_path", default="./output", help="directory of the results (default ./output)")
    found.add_argument("-m", "--mode", default="auto", choices=_MODES, help="only auto is part of this version")
    found.add_argument("-fm", "--fuzzy_match", action="store_true", help="match without the number of the call")
    found.add_argument("-tensor_log", "--is_print_compare_log", action="store_true", help="accepted, without effect")
    found.add_argument("--rank", help="only this rank")
    found.add_argument("--step", help="only this step")
    found.add_argument("--xlsx", action="store_true", help=argparse.SUPPRESS)
    for name, options in (
        ("cell_mapping", ("-cm", "--cell_mapping")),
        ("api_mapping", ("-am", "--api_mapping")),
        ("layer_mapping", ("-lm", "--layer_mapping")),
    ):
        found.add_argument(*options, dest=name, nargs="?", const=True, help=argparse.SUPPRESS)
    found.add_argument("-dm", "--data_mapping", help=argparse.SUPPRESS)
    found.add_argument("-da", "--diff_analyze", action="store_true", help=argparse.SUPPRESS)
    found.add_argument("--consistent_check", action="store_true", help=argparse.SUPPRESS)
    found.add_argument("--backend", help=argparse.SUPPRESS)
    found.add_argument("--config", help=argparse.SUPPRESS)
    return found


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 when the tables are written, whatever they say, as the established tool does."""
    given = parser().parse_args(arguments)
    if given.mode != "auto":
        _fail(f"mode {given.mode} is not part of this version; only auto is", EXIT_USAGE)
    for name, option in _ABSENT.items():
        if getattr(given, name):
            _fail(f"{option} is not part of this version yet; leave it out", EXIT_USAGE)
    try:
        _compare(given)
    except MsprobeError as error:
        _fail(" ".join(str(error).split()), EXIT_FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    sys.exit(0)


def _fail(message: str, code: int) -> NoReturn:
    print(f"msprobe compare: {message}", file=sys.stderr)
    sys.exit(code)


def _compare(given: argparse.Namespace) -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from msprobe_client.client import Client
    from msprobe_client.errors import InvalidArgument
    from msprobe_client.result_files import result_file_names

    paths = [Path(given.target_path), Path(given.golden_path)]
    for path in paths:
        if not path.exists():
            raise InvalidArgument(f"{path} does not exist")
    if paths[0].is_dir() != paths[1].is_dir():
        raise InvalidArgument("the target and the golden path must both be files, or both directories")
    steps = [(int(given.step), int(given.step))] if given.step else []
    with tempfile.TemporaryDirectory(prefix="msprobe-compare-") as scratch, Client(data_dir=scratch) as client:
        for report in client.compare_tables(
            str(paths[0].resolve()),
            str(paths[1].resolve()),
            given.output_path,
            file_name=result_file_names("csv", several=paths[0].is_dir()),
            steps=steps,
            ranks=[given.rank] if given.rank else [],
            matching="fuzzy" if given.fuzzy_match else "exact",
        ):
            print(f"The result file path is: {report.path}.")

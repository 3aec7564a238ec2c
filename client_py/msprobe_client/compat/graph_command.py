"""msprobe graph_visualize: mindstudio-probe's command line for graph databases, over our server."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msprobe_client.compat.compare_command import fail, guarded
from msprobe_client.errors import InvalidArgument, MsprobeError
from msprobe_client.examples import plain
from msprobe_client.exit_codes import EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMAND = "msprobe graph_visualize"
# Options that merge ranks, and one for modules by other names.
_ABSENT = (
    ("layer_mapping", "-lm"),
    ("rank_size", "--rank_size"),
    ("tp", "--tp"),
    ("pp", "--pp"),
    ("vpp", "--vpp"),
    ("order", "--order"),
)

EXAMPLES = (
    "msprobe graph_visualize -tp dump_a -o graphs",
    "msprobe graph_visualize -tp dump_a/step3 -gp dump_b/step3 -o graphs -oc",
)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Write the graph of a dump, or of two beside each other, for TensorBoard: a .vis.db.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("-tp", "--target_path", required=True, help="a dump_path, one step of it, or one rank")
    found.add_argument("-gp", "--golden_path", help="the same of the golden side")
    found.add_argument("-o", "--output_path", required=True, help="directory of the result")
    found.add_argument("-oc", "--overflow_check", action="store_true", help="mark where NaN and infinity are")
    found.add_argument("-fm", "--fuzzy_match", action="store_true", help="match operations without the call's number")
    found.add_argument("-tensor_log", "--is_print_compare_log", action="store_true", help="accepted, without effect")
    found.add_argument(
        "-progress_log", "--is_print_progress_log", action="store_true", help="print lines PROGRESS: {json}"
    )
    found.add_argument("--file_type", default="db", choices=("db", "json"), help="json only where ranks are merged")
    found.add_argument("-lm", "--layer_mapping", nargs="?", const=True, metavar="YAML", help=argparse.SUPPRESS)
    for name in ("rank_size", "tp", "pp", "vpp", "order"):
        found.add_argument(f"--{name}", nargs="+", help=argparse.SUPPRESS)
    return found


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 when the graph is written, whatever it shows, as mindstudio-probe does."""
    given = parser().parse_args(arguments)
    for name, option in _ABSENT:
        if getattr(given, name) is not None:
            fail(_COMMAND, f"{option} is not part of this version", EXIT_USAGE)
    if given.file_type == "json":
        fail(_COMMAND, "--file_type json is for merged ranks, which are not part of this version", EXIT_USAGE)
    progress = _Progress(shown=given.is_print_progress_log)

    def work() -> None:
        try:
            _write(given, progress)
        except MsprobeError as error:
            progress.failed(str(error))
            raise
        finally:
            progress.ended()

    guarded(_COMMAND, work)


class _Progress:
    """Lines that TensorBoard's plugin reads when it converts dumps itself."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._state: dict[str, Any] = {"current_progress": 0, "process_running": True, "error_msg": []}

    def at(self, done: int, total: int) -> None:
        # The last part is the server's, which makes the file ready.
        percent = 99 * done // total if total else 0
        if percent != self._state["current_progress"]:
            self._tell(current_progress=percent)

    def done(self) -> None:
        self._tell(current_progress=100)

    def failed(self, message: str) -> None:
        self._tell(error_msg=[*self._state["error_msg"], message])

    def ended(self) -> None:
        self._tell(process_running=False)

    def _tell(self, **changed: Any) -> None:
        self._state.update(changed)
        if self._shown:
            print(f"PROGRESS: {json.dumps(self._state)}", flush=True)


def _write(given: argparse.Namespace, progress: _Progress) -> None:
    from msprobe_client.client import Client
    from msprobe_client.vis_file import vis_file

    target = _directory(given.target_path)
    golden = None if given.golden_path is None else _directory(given.golden_path)
    file = vis_file(Path(given.output_path), compare=golden is not None)
    advance: Callable[[int, int], None] = progress.at
    with tempfile.TemporaryDirectory(prefix="msprobe-graph-") as scratch, Client(data_dir=scratch) as client:
        report = client.graph(
            target,
            file,
            golden,
            matching="fuzzy" if given.fuzzy_match else "exact",
            overflow=given.overflow_check,
            progress=advance,
        )
    progress.done()
    for text in (*report.warnings, *map(str, report.unpaired)):
        print(f"{_COMMAND}: {text}")
    print(f"The result file path is: {report.path}.")


def _directory(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise InvalidArgument(f"{path} does not exist")
    if not path.is_dir():
        raise InvalidArgument(f"{path} is not a directory; name a dump_path, one step of it, or one rank")
    return path.resolve()

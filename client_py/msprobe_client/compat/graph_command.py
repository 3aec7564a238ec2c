"""msprobe graph_visualize: mindstudio-probe's command line for graph databases, over our server."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msprobe_client.compat.compare_command import fail, guarded
from msprobe_client.errors import InvalidArgument, MsprobeError
from msprobe_client.examples import plain
from msprobe_client.exit_codes import EXIT_USAGE
from msprobe_client.scratch import scratch_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe_client.proto import analysis_pb2

_COMMAND = "msprobe graph_visualize"
# Of merging: how many ranks have which part of the model.
_LAYOUT = ("rank_size", "tp", "pp")
_ORDER = "tp-cp-ep-dp-pp"
_MOST_RANKS = 2**20

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
    found.add_argument(
        "--file_type", default="db", choices=("db", "json"), help="json: merged ranks as a dump of the whole model"
    )
    found.add_argument(
        "-lm", "--layer_mapping", nargs="?", const=True, metavar="YAML", help="match by modules' places; names by class"
    )
    merging = found.add_argument_group("merging ranks into the whole model; one value for each side")
    merging.add_argument("--rank_size", nargs="+", type=int, metavar="N", help="number of ranks")
    merging.add_argument("--tp", nargs="+", type=int, metavar="N", help="ranks that share each tensor")
    merging.add_argument("--pp", nargs="+", type=int, metavar="N", help="ranks that have layers one after another")
    merging.add_argument("--vpp", nargs="+", type=int, metavar="N", help="chunks of layers on each rank of a pipeline")
    merging.add_argument("--order", nargs="+", help=f"of ranks; {_ORDER}")
    return found


def _layouts(given: argparse.Namespace) -> list[analysis_pb2.ParallelLayout]:
    """InvalidArgument: the options do not say a layout for each side."""
    from msprobe_client.proto import analysis_pb2

    needed = {name: getattr(given, name) for name in _LAYOUT}
    others = {name: value for name in ("vpp", "order") if (value := getattr(given, name)) is not None}
    if not any(needed.values()):
        for name, value in others.items():
            if value not in ([1], [_ORDER]):
                raise InvalidArgument(f"--{name} is for merging ranks: give --rank_size, --tp and --pp, too")
        return []
    sides = 1 if given.golden_path is None else 2
    for name, values in (needed | others).items():
        if values is None or len(values) != sides:
            raise InvalidArgument(f"--{name} needs {sides} value{'s' * (sides - 1)}, one for each side")
        for value in values:
            if isinstance(value, int) and not 1 <= value <= _MOST_RANKS:
                raise InvalidArgument(f"--{name} {value} is not allowed: it must be 1 to {_MOST_RANKS}")
    chunks, orders = others.get("vpp", [1] * sides), others.get("order", [_ORDER] * sides)
    return [
        analysis_pb2.ParallelLayout(ranks=ranks, tensor=tensor, pipeline=pipeline, virtual_pipeline=vpp, order=order)
        for ranks, tensor, pipeline, vpp, order in zip(*needed.values(), chunks, orders, strict=True)
    ]


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 when the graph is written, whatever it shows, as mindstudio-probe does."""
    given = parser().parse_args(arguments)
    given.golden_path = given.golden_path or None  # TensorBoard's plugin gives -gp '' where there is none
    try:
        if given.file_type == "json" and given.golden_path:
            raise InvalidArgument("--file_type json is for merging the ranks of one side: leave out -gp")
        layouts = _layouts(given)
    except InvalidArgument as error:
        fail(_COMMAND, str(error), EXIT_USAGE)
    progress = _Progress(shown=given.is_print_progress_log)

    def work() -> None:
        try:
            _write(given, layouts, progress)
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


def _write(given: argparse.Namespace, layouts: list[analysis_pb2.ParallelLayout], progress: _Progress) -> None:
    from msprobe_client import name_mapping
    from msprobe_client.client import Client
    from msprobe_client.vis_file import vis_file

    target = _directory(given.target_path)
    golden = None if given.golden_path is None else _directory(given.golden_path)
    mapping = given.layer_mapping
    layers = None if mapping is None else name_mapping.layers(None if mapping is True else mapping)
    advance: Callable[[int, int], None] = progress.at
    if given.file_type == "json" and not layouts:
        print(f"{_COMMAND}: --file_type json is for merged ranks (--rank_size, --tp, --pp); this is a database")
    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        if given.file_type == "json" and layouts:
            dump = client.merged_dump(target, given.output_path, layouts[0], progress=advance)
            progress.done()
            _tell(dump.warnings, ", ".join(dump.directories))
            return
        file = vis_file(Path(given.output_path), compare=golden is not None)
        report = client.graph(
            target,
            file,
            golden,
            matching="fuzzy" if given.fuzzy_match else "exact",
            overflow=given.overflow_check,
            layers=layers,
            layouts=layouts,
            progress=advance,
        )
    progress.done()
    _tell((*report.warnings, *map(str, report.unpaired)), report.path)


def _tell(notes: tuple[str, ...], result: str) -> None:
    for text in notes:
        print(f"{_COMMAND}: {text}")
    print(f"The result file path is: {result}.")


def _directory(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise InvalidArgument(f"{path} does not exist")
    if not path.is_dir():
        raise InvalidArgument(f"{path} is not a directory; name a dump_path, one step of it, or one rank")
    return path.resolve()

"""msprobe acc_check: each call of a dump.json again, on this machine's device and in higher precision on the CPU."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msprobe_client.compat.compare_command import framework_of, guarded
from msprobe_client.errors import InvalidArgument
from msprobe_client.examples import plain
from msprobe_client.given_file import json_of
from msprobe_client.scratch import scratch_directory

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.compat.mindspore_tables import MindSporeCalls
    from msprobe_client.compat.replayed_calls import Choice, ReplayedCalls, Source

    Calls: TypeAlias = MindSporeCalls | ReplayedCalls

MINDSPORE = "mindspore"
_COMMAND = "msprobe acc_check"
# Sections of config.json, the second of the 1.0 line.
_SECTIONS = ("acc_check", "run_ut")
_RESULT_NAME = re.compile(r"accuracy_checking_result_\d{14}\.csv")
_HOMES = ("Functional", "Torch", "Tensor", "NPU", "Aten", "VF")

EXAMPLES = (
    "msprobe acc_check -api_info dump_a/step3/rank0/dump.json -o checked",
    "msprobe acc_check -api_info dump_a/step3/rank0/dump.json -o checked -f -save_error_data",
)


def device_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a device; write 0, 1, ...")
    return int(text)


def parser(command: str = _COMMAND, examples: tuple[str, ...] = EXAMPLES) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=command,
        description="Run every recorded call again; writes accuracy_checking_result_*.csv and _details_*.csv.",
        epilog=plain(examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument("-api_info", "--api_info_file", required=True, metavar="FILE", help="dump.json of one rank")
    found.add_argument("-o", "--out_path", default="./", metavar="DIR", help="directory of the results (default ./)")
    found.add_argument("-save_error_data", action="store_true", help="keep the tensors of calls that do not pass")
    found.add_argument("-j", "--jit_compile", action="store_true", help="compile operators; of an NPU alone")
    found.add_argument(
        *("-d", "--device"), nargs="+", type=device_number, default=[0], metavar="N", help="devices (default 0)"
    )
    found.add_argument(
        *("-csv_path", "--result_csv_path"), metavar="FILE", help="go on with this accuracy_checking_result_*.csv"
    )
    found.add_argument(
        *("-f", "--filter_api"), action="store_true", help="leave out calls like an earlier one but for their range"
    )
    found.add_argument("-config", "--config_path", metavar="JSON", help="white_list, black_list, error_data_path")
    return found


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 when the tables are written, whatever they say, as mindstudio-probe does."""
    given = parser().parse_args(arguments)
    guarded(_COMMAND, lambda: _check(given))


def _check(given: argparse.Namespace) -> None:
    from msprobe_client.output import progress

    check = Prepared.of(given)
    with (
        imported(check.dump, check.devices[0], check.framework) as (client, source),
        check.tables() as (tables, choice),
        calls_of(client, source, check.error_folder) as calls,
        progress.bar("check", "calls") as advance,
    ):
        names = calls.chosen(choice)
        for done, name in enumerate(names, 1):
            tables.add(calls.rows(name, choice))
            advance(done, len(names))
    report(tables.paths)


def calls_of(client: Client, source: Source, error_folder: Path | None = None) -> Calls:
    """What checks the calls of the source's framework."""
    if source.framework == MINDSPORE:
        from msprobe_client.compat.mindspore_tables import MindSporeCalls

        return MindSporeCalls(client, source, error_folder)
    from msprobe_client.compat.replayed_calls import ReplayedCalls

    return ReplayedCalls(client, source, error_folder)


def report(paths: tuple[Path, Path]) -> None:
    for path in paths:
        print(f"The result file path is: {path}.")


@dataclass(frozen=True)
class Prepared:
    """What was asked for, and found to be possible."""

    dump: Path
    output: Path
    devices: list[str]
    resumed: Path | None
    error_folder: Path | None
    lists: tuple[list[str], list[str]]
    filtered: bool
    time: str
    framework: str

    @classmethod
    def of(cls, given: argparse.Namespace) -> Prepared:
        dump = dump_of(given.api_info_file)
        framework = framework_of(dump)
        if framework == MINDSPORE:
            _refuse_options_of_pytorch(given)
        output = Path(given.out_path)
        if output.exists() and not output.is_dir():
            raise InvalidArgument(f"-o {output} is not a directory")
        white, black, error_path = _config(given.config_path)
        resumed = Path(given.result_csv_path) if given.result_csv_path else None
        if resumed is not None:
            _refuse_other_names(resumed)
        if framework == MINDSPORE:
            devices = _mindspore_devices(given.device)
        else:
            devices = devices_of(given.device, jit_compile=given.jit_compile)
        stamp = time.strftime("%Y%m%d%H%M%S")
        folder = None
        if given.save_error_data and framework == MINDSPORE:
            folder = output / "error_data"
        elif given.save_error_data:
            folder = error_path / f"ut_error_data{resumed.stem.rpartition('_')[2] if resumed else stamp}"
        return cls(dump, output, devices, resumed, folder, (white, black), given.filter_api, stamp, framework)

    @contextmanager
    def tables(self) -> Iterator[tuple[Any, Choice]]:
        from msprobe_client.compat.accuracy_tables import PYTORCH, AccuracyTables
        from msprobe_client.compat.replayed_calls import Choice

        layout = PYTORCH
        if self.framework == MINDSPORE:
            from msprobe_client.compat.mindspore_tables import LAYOUT as layout
        done: set[str] = set()
        if self.resumed is not None:
            tables, done = AccuracyTables.resumed(self.resumed, layout)
        else:
            tables = AccuracyTables.new(self.output, self.time, layout)
        with tables:
            yield tables, Choice(*self.lists, self.filtered, done)


def _refuse_other_names(resumed: Path) -> None:
    if not _RESULT_NAME.fullmatch(resumed.name):
        raise InvalidArgument(f"-csv_path {resumed} is not called accuracy_checking_result_YYYYmmddHHMMSS.csv")
    if not resumed.is_file():
        raise InvalidArgument(f"-csv_path {resumed} does not exist")


def dump_of(text: str, frameworks: Collection[str] = ("pytorch", MINDSPORE)) -> Path:
    path = Path(text)
    if not path.is_file():
        raise InvalidArgument(f"-api_info {path} is not a file; name the dump.json of one rank")
    if MINDSPORE not in frameworks and framework_of(path) == MINDSPORE:
        raise InvalidArgument(f"-api_info {path} is of MindSpore; this command is for calls of PyTorch")
    return path


def _refuse_options_of_pytorch(given: argparse.Namespace) -> None:
    for option, value in (("-j", given.jit_compile), ("-f", given.filter_api), ("-config", given.config_path)):
        if value:
            raise InvalidArgument(f"{option} is for a dump.json of PyTorch, and {given.api_info_file} is of MindSpore")


def _mindspore_devices(numbers: list[int]) -> list[str]:
    """NPUs where this machine has them, else the CPU."""
    from importlib.util import find_spec

    for name in ("torch", "numpy"):
        if find_spec(name) is None:
            raise InvalidArgument(f"calls are held beside torch's, and this environment has no {name}; install it here")
    if len(set(numbers)) != len(numbers):
        raise InvalidArgument(f"-d {' '.join(map(str, numbers))}: a device is named twice")
    if not any(Path("/dev").glob("davinci[0-9]*")):
        return ["cpu"]
    for number in numbers:
        if not Path(f"/dev/davinci{number}").exists():
            raise InvalidArgument(f"-d {number}: this machine has no npu:{number}")
    return [f"npu:{number}" for number in numbers]


def devices_of(numbers: list[int], *, jit_compile: bool) -> list[str]:
    """NPUs where torch_npu is installed, else GPUs, else the CPU."""
    if len(set(numbers)) != len(numbers):
        raise InvalidArgument(f"-d {' '.join(map(str, numbers))}: a device is named twice")
    try:
        import torch
    except ImportError:
        raise InvalidArgument("calls run again in torch, and this environment has none; install it here") from None
    try:
        import torch_npu  # type: ignore[import-not-found, unused-ignore]

        torch_npu.npu.set_compile_mode(jit_compile=jit_compile)
        kind, count = "npu", torch_npu.npu.device_count()
    except ImportError:
        kind, count = "cuda", torch.cuda.device_count()
    if count == 0:
        kind, count = "cpu", 1
    for number in numbers:
        if number >= count:
            raise InvalidArgument(f"-d {number}: this machine has {kind}:0 {f'to {kind}:{count - 1}' * (count > 1)}")
    return ["cpu"] if kind == "cpu" else [f"{kind}:{number}" for number in numbers]


@contextmanager
def imported(dump: Path, device: str, framework: str = "pytorch") -> Iterator[tuple[Client, Source]]:
    """A server of our own that holds the dump."""
    from msprobe_client.analysis_client import uploaded
    from msprobe_client.client import Client
    from msprobe_client.compat.replayed_calls import Source

    with (
        scratch_directory() as scratch,
        Client(data_dir=Path(scratch) / "data", create=True) as client,
        uploaded(client, _directory_of(dump, Path(scratch))) as run,
    ):
        steps = client.steps(run)
        if not steps:
            raise InvalidArgument(f"-api_info {dump} holds no call")
        yield client, Source(run, steps[0].step, str(steps[0].rank), str(dump), device, framework)


def _directory_of(dump: Path, scratch: Path) -> Path:
    """A rank's directory with the dump in it: its own, or one of links where it has another name or place."""
    from msprobe_client.dump_files import rank_directories

    if dump.name == "dump.json" and list(rank_directories(dump.parent)):
        return dump.parent
    directory = scratch / "rank0"
    directory.mkdir()
    (directory / "dump.json").symlink_to(dump.resolve())
    (directory / "dump_tensor_data").symlink_to(dump.resolve().parent / "dump_tensor_data")
    return directory


def _config(text: str | None) -> tuple[list[str], list[str], Path]:
    """White list, black list, and where tensors are kept."""
    if text is None:
        return [], [], Path()
    try:
        document = json_of(text)
    except FileNotFoundError:
        raise InvalidArgument(f"-config {text} does not exist") from None
    section = next((document[name] for name in _SECTIONS if isinstance(document, dict) and name in document), None)
    if not isinstance(section, dict):
        raise InvalidArgument(f'-config {text}: it has no object "acc_check"')
    lists = []
    for key in ("white_list", "black_list"):
        names = section.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidArgument(f"-config {text}: {key} is {json.dumps(names)}, not a list of names such as conv2d")
        for name in names:
            _refuse_unknown(text, key, name)
        lists.append(names)
    folder = section.get("error_data_path", "./")
    if not isinstance(folder, str) or not Path(folder).is_dir():
        raise InvalidArgument(f"-config {text}: error_data_path {json.dumps(folder)} is not a directory")
    return lists[0], lists[1], Path(folder)


def _refuse_unknown(text: str, key: str, name: str) -> None:
    from msprobe_client.check.operators import CallName, reference_of

    calls = (CallName.parse(f"{home}.{name}.0.forward") for home in _HOMES)
    if not any(call is not None and reference_of(call) is not None for call in calls):
        raise InvalidArgument(f"-config {text}: {key} names {name!r}, which is no operator; write one such as conv2d")

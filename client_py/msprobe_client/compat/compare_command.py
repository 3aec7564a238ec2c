"""msprobe compare: mindstudio-probe's command line over our server. Without typer: it must start at once."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msprobe_client.errors import InvalidArgument, MsprobeError
from msprobe_client.examples import plain
from msprobe_client.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from msprobe_client.scratch import scratch_directory
from msprobe_client.visible import no_utf_8, visible

if TYPE_CHECKING:
    from msprobe_client.analysis_client import TrainingBackend

_MODES = ("auto", "offline_data", "torchair", "offline_model", "atb")
_BACKENDS: tuple[TrainingBackend, ...] = ("fsdp", "megatron")
# What a dump_path of MindSpore holds where a part of the program is compiled.
_PARTS = ("graph", "pynative")
# Options of the modes that are not here.
_OF_OTHER_MODES = (
    ("-fr", "--fusion_rule_file"),
    ("-qfr", "--quant_fusion_rule_file"),
    ("-cfr", "--close_fusion_rule_file"),
    ("--input_data",),
    ("--input_shape",),
    ("--output_size",),
    ("--dym_shape_range",),
    ("-ofs", "--onnx_fusion_switch"),
)
_FRAMEWORK = re.compile(rb'"framework"\s*:\s*"(\w+)"')
# It stands before "data", which is what is long.
_HEAD_BYTES = 4096


EXAMPLES = (
    "msprobe compare -tp dump_a/step3/rank0/dump.json -gp dump_b/step3/rank0/dump.json",
    "msprobe compare -tp dump_a/step3 -gp dump_b/step3 -o result --xlsx",
)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="msprobe compare",
        description="Compare two dumps; writes compare_result_* as mindstudio-probe does.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("-tp", "--target_path", required=True, help="dump.json, or a directory of one step")
    found.add_argument("-gp", "--golden_path", required=True, help="the same of the golden side")
    found.add_argument("-o", "--output_path", default="./output", help="directory of the results (default ./output)")
    found.add_argument("-m", "--mode", default="auto", choices=_MODES, help="only auto is part of this version")
    found.add_argument("--xlsx", action="store_true", help="xlsx instead of csv")
    found.add_argument("-fm", "--fuzzy_match", action="store_true", help="match without the number of the call")
    for short, name, what in (
        ("-cm", "cell_mapping", "names of modules: {target: golden}; without a file Cell is Module"),
        ("-am", "api_mapping", "of MindSpore: its APIs to PyTorch's; without a file the known ones"),
        ("-lm", "layer_mapping", "of MindSpore: paths of modules by class"),
    ):
        found.add_argument(short, f"--{name}", nargs="?", const=True, metavar="YAML", help=what)
    found.add_argument("-dm", "--data_mapping", metavar="YAML", help="full names of tensors: {target: golden}")
    found.add_argument("-da", "--diff_analyze", action="store_true", help="find the first difference across ranks")
    found.add_argument("-tensor_log", "--is_print_compare_log", action="store_true", help="accepted, without effect")
    found.add_argument("--rank", help="only this rank")
    found.add_argument("--step", help="only this step")
    found.add_argument(
        "--consistent_check", action="store_true", help="a training step against an inference step of the same weights"
    )
    found.add_argument("--backend", choices=_BACKENDS, help="what trained, with --consistent_check")
    found.add_argument("--config", metavar="YAML", help="matrices that tensors are multiplied by before")
    for names in _OF_OTHER_MODES:
        found.add_argument(*names, dest=names[-1].lstrip("-"), help=argparse.SUPPRESS)
    return found


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 when the tables are written, whatever they say, as mindstudio-probe does."""
    given = parser().parse_args(arguments)
    if given.mode != "auto":
        reason = f"mode {given.mode} needs CANN and an NPU; only auto is here, and for an .onnx `msprobe-client onnx`"
        fail("msprobe compare", reason, EXIT_USAGE)
    for names in _OF_OTHER_MODES:
        if getattr(given, names[-1].lstrip("-")) is not None:
            fail("msprobe compare", f"{names[-1]} is not for mode auto, the only one of this version", EXIT_USAGE)
    try:
        training = training_backend(given.consistent_check, given.backend, analyze=given.diff_analyze)
    except InvalidArgument as error:
        fail("msprobe compare", str(error), EXIT_USAGE)
    guarded("msprobe compare", lambda: _compare(given, training))


def training_backend(consistent_check: bool, backend: str | None, *, analyze: bool) -> TrainingBackend | None:
    """What trained, where training is compared with inference; refuses what does not go together."""
    if not consistent_check:
        return None
    if analyze:
        raise InvalidArgument("the first difference (-da) is not for --consistent_check; leave one of them out")
    for known in _BACKENDS:
        if backend == known:
            return known
    raise InvalidArgument(f"--consistent_check needs --backend {' or '.join(_BACKENDS)}, not {backend!r}")


def guarded(command: str, work: Any) -> NoReturn:
    """Does it and ends; what can go wrong is one line."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        work()
    except MsprobeError as error:
        fail(command, str(error), EXIT_FAILED)
    except OSError as error:
        fail(command, f"{error.filename or 'output'}: {error.strerror or error}", EXIT_FAILED)
    except UnicodeEncodeError as error:
        fail(command, no_utf_8(error), EXIT_FAILED)
    except KeyboardInterrupt:
        fail(command, "interrupted", EXIT_INTERRUPTED)
    sys.exit(0)


def fail(command: str, message: str, code: int) -> NoReturn:
    print(visible(f"{command}: {' '.join(message.split())}"), file=sys.stderr)
    sys.exit(code)


def sides(target: str, golden: str) -> tuple[Path, Path]:
    """Both paths, which must be of one kind."""
    paths = Path(target), Path(golden)
    for path in paths:
        if not path.exists():
            raise InvalidArgument(f"{path} does not exist")
    if paths[0].is_dir() != paths[1].is_dir():
        raise InvalidArgument("the target and the golden path must both be files, or both directories")
    return paths[0].resolve(), paths[1].resolve()


def _compare(given: argparse.Namespace, training: TrainingBackend | None) -> None:
    from msprobe_client import name_mapping
    from msprobe_client.model import Rank

    target, golden = sides(given.target_path, given.golden_path)
    if given.api_mapping and framework_of(target) == "pytorch" and framework_of(golden) == "pytorch":
        raise InvalidArgument("-am is for dumps of MindSpore, and both of these are of PyTorch; leave it out")
    files = {"data": given.data_mapping, "cell": given.cell_mapping, "api": given.api_mapping}
    layer = given.layer_mapping if given.layer_mapping is not True else None
    mapping = name_mapping.mapping(**files, layer=layer) if any(files.values()) or layer else None
    where: dict[str, Any] = {
        "steps": [_step(given.step)] if given.step else [],
        "ranks": [Rank.parse(given.rank)] if given.rank else [],
    }
    for one, other, output in _parts(target, golden, Path(given.output_path)):
        results = write_results(
            one,
            other,
            output,
            xlsx=given.xlsx,
            fuzzy=given.fuzzy_match,
            analyze=given.diff_analyze,
            mapping=mapping,
            config=given.config,
            training=training,
            **where,
        )
        for path in results:
            print(f"The result file path is: {path}.")


def _parts(target: Path, golden: Path, output: Path) -> Iterator[tuple[Path, Path, Path]]:
    """What is compared, and where its results go: each step of each part that MindSpore's dump_path has on both sides
    where it ran graphs and single operators, each into a directory of its own; else the two sides."""
    parts = [part for part in _PARTS if (target / part).is_dir() and (golden / part).is_dir()]
    if not parts:
        yield target, golden, output
    for part in parts:
        for step in sorted((target / part).iterdir(), key=lambda path: (len(path.name), path.name)):
            if not (golden / part / step.name).is_dir():
                continue
            if next(step.rglob("dump.json"), None) is None:
                message = "no dump.json below it; kernels that MindSpore dumps by itself are not compared"
                print(f"msprobe compare: {step}: {message}", file=sys.stderr)
                continue
            yield step, golden / part / step.name, output / part / step.name


def write_results(
    target: Path,
    golden: Path,
    output: Path,
    *,
    xlsx: bool = False,
    fuzzy: bool = False,
    analyze: bool = False,
    mapping: Any = None,
    config: str | None = None,
    training: TrainingBackend | None = None,
    **where: Any,
) -> Iterator[str]:
    """Writes the result files; their paths as they are there. The dumps are read by a server of our own."""
    from msprobe_client.client import Client
    from msprobe_client.compat.first_difference import write_first_difference
    from msprobe_client.compat.result_files import result_file_names
    from msprobe_client.compat.result_xlsx import ResultXlsx
    from msprobe_client.output import progress

    with (
        scratch_directory() as scratch,
        scratch_directory() as calibrated,
        Client(data_dir=scratch, create=True) as client,
    ):
        if config:
            from msprobe_client.calibration import Calibration

            calibration = Calibration(config)
            target = calibration.applied("target", target, Path(calibrated))
            golden = calibration.applied("golden", golden, Path(calibrated))
        if analyze and target.is_dir():
            yield from write_first_difference(client, target, golden, output, fuzzy=fuzzy, mapping=mapping, **where)
            return
        with progress.bar("compare", "files") as advance:
            reports = client.compare_tables(
                target,
                golden,
                output,
                file_name=result_file_names("xlsx" if xlsx else "csv", several=target.is_dir()),
                form=ResultXlsx(coloured=False, training=training is not None) if xlsx else None,
                matching="fuzzy" if fuzzy else "exact",
                mapping=mapping,
                training=training,
                **where,
            )
            for number, report in enumerate(reports, 1):
                advance(number, 0)
                yield report.path


def _step(text: str) -> tuple[int, int]:
    if not text.isdecimal():
        raise InvalidArgument(f"--step {text!r} is not a step; write its number")
    return int(text), int(text)


def framework_of(path: Path) -> str:
    """Of the first dump in it; empty where it does not say."""
    file = path if path.is_file() else next(iter(sorted(path.rglob("dump.json"))), None)
    if file is None:
        return ""
    with file.open("rb") as content:
        found = _FRAMEWORK.search(content.read(_HEAD_BYTES))
    return found[1].decode() if found else ""

"""msprobe -f pytorch compare -i compare.json: the command line of mindstudio-probe's 1.0 line over our server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn

from msprobe_client.compat.compare_command import fail, guarded, sides
from msprobe_client.errors import InvalidArgument
from msprobe_client.exit_codes import EXIT_USAGE
from msprobe_client.given_file import json_of
from msprobe_client.scratch import scratch_directory

FRAMEWORKS = ("pytorch", "mindspore")
_PATHS = (("npu_path", "npu_json_path"), ("bench_path", "bench_json_path"))


def parser(framework: str) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=f"msprobe -f {framework} compare", description="Compare two dumps; writes compare_result_*.xlsx."
    )
    found.add_argument("-i", "--input_path", required=True, metavar="FILE", help="compare.json: npu_path, bench_path")
    found.add_argument("-o", "--output_path", default="./output", help="directory of the results (default ./output)")
    found.add_argument("-s", "--stack_mode", action="store_true", help="add the calls' stacks")
    found.add_argument("-c", "--compare_only", action="store_true", help="write no advisor_*.txt")
    found.add_argument("-f", "--fuzzy_match", action="store_true", help="match without the number of the call")
    found.add_argument("-cm", "--cell_mapping", nargs="?", const=True, metavar="YAML", help="names of modules")
    found.add_argument(
        "-am", "--api_mapping", nargs="?", const=True, metavar="YAML", help="MindSpore's APIs to PyTorch's"
    )
    found.add_argument("-dm", "--data_mapping", metavar="YAML", help="full names of rows")
    found.add_argument("-lm", "--layer_mapping", metavar="YAML", help="paths of modules by class")
    found.add_argument("-hl", "--highlight", action="store_true", help="colour rows, which are always coloured")
    return found


def main(framework: str, arguments: list[str]) -> NoReturn:
    if framework not in FRAMEWORKS:
        fail("msprobe", f"-f {framework} is not known; it is pytorch or mindspore", EXIT_USAGE)
    given = parser(framework).parse_args(arguments)
    guarded(f"msprobe -f {framework} compare", lambda: _compare(given))


def _compare(given: argparse.Namespace) -> None:
    from msprobe_client import name_mapping

    files = {
        "cell": given.cell_mapping,
        "api": given.api_mapping,
        "data": given.data_mapping,
        "layer": given.layer_mapping,
    }
    mapping = name_mapping.mapping(**files) if any(files.values()) else None
    target, golden = read_input(Path(given.input_path))
    for path in compare_v1(
        target,
        golden,
        given.output_path,
        stacks=given.stack_mode,
        advice=not given.compare_only,
        fuzzy=given.fuzzy_match,
        mapping=mapping,
    ):
        print(f"Compare result is {path}")


def read_input(path: Path) -> tuple[str, str]:
    """Both sides that a compare.json names."""
    return paths_of(json_of(path), str(path))


def paths_of(found: Any, where: str) -> tuple[str, str]:
    if not isinstance(found, dict):
        raise InvalidArgument(f'{where}: it is not an object with "npu_path" and "bench_path"')
    paths = []
    for names in _PATHS:
        value = next((found[name] for name in names if found.get(name)), None)
        if not isinstance(value, str):
            raise InvalidArgument(f'{where}: it has no text "{names[0]}"')
        paths.append(value)
    return paths[0], paths[1]


def compare_v1(
    target: str,
    golden: str,
    output: str | Path,
    *,
    stacks: bool,
    advice: bool,
    fuzzy: bool,
    mapping: Any = None,
) -> list[str]:
    """Writes the tables; their paths. The files are read by a server of our own, ended here."""
    from msprobe_client.client import Client
    from msprobe_client.compat.result_files import result_file_names
    from msprobe_client.compat.v1_result import V1Result

    npu, bench = sides(target, golden)
    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        return [
            report.path
            for report in client.compare_tables(
                npu,
                bench,
                output,
                file_name=result_file_names("xlsx", several=npu.is_dir()),
                form=V1Result(stacks=stacks, advice=advice),
                matching="fuzzy" if fuzzy else "exact",
                mapping=mapping,
            )
        ]

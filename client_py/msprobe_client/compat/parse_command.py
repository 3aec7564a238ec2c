"""msprobe parse: ATB's .bin files and kernel dumps as .npy or .pt; under `msprobe -f pytorch` the interactive shell."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from msprobe_client.compat.compare_command import guarded
from msprobe_client.errors import InvalidArgument, MsprobeError
from msprobe_client.examples import plain
from msprobe_client.scratch import scratch_directory
from msprobe_client.visible import visible

EXAMPLES = (
    "msprobe parse -d 0_intensor0.bin -t npy -o parsed",
    "msprobe parse -d kernel_dumps -o parsed",
)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="msprobe parse",
        description="Write the tensors of ATB's .bin files and of kernel dumps as .npy or .pt.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("-d", "--dump_path", required=True, metavar="PATH", help="a file, or a directory of such files")
    found.add_argument("-t", "--type", default="pt", choices=("npy", "pt"), help="default pt")
    found.add_argument(
        "-o", "--output_path", nargs="?", default="./output", const="./output", metavar="DIR", help="default ./output"
    )
    return found


def main(arguments: list[str]) -> NoReturn:
    given = parser().parse_args(arguments)
    guarded("msprobe parse", lambda: _run(Path(given.dump_path), given.type, Path(given.output_path)))


def _run(source: Path, suffix: str, output: Path) -> None:
    from msprobe_client.client import Client
    from msprobe_client.compat.kernel_dumps import converted, files_below

    found = list(files_below(source, depth=1))
    if not found:
        raise InvalidArgument(f"{source} holds no files; an ATB .bin or a kernel dump is needed there")
    wrong = []
    written = 0
    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        for file in found:
            try:
                for path in converted(client.tensor_files, file, output, suffix):
                    print(visible(str(path)))
                    written += 1
            except MsprobeError as error:
                if source.is_file():
                    raise
                wrong.append(str(error))
    for line in wrong:
        print(visible(f"msprobe parse: {line}"), file=sys.stderr)
    if wrong and not written:
        raise InvalidArgument(f"{source} holds no file that could be read")

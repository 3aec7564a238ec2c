"""msprobe config_check: what two training runs were configured with, and where it differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from msprobe_client.compat.compare_command import guarded
from msprobe_client.errors import InvalidArgument
from msprobe_client.examples import plain
from msprobe_client.visible import visible

EXAMPLES = (
    "msprobe config_check -d train_gpu.sh -o bench.zip",
    "msprobe config_check -d train_npu.sh -o cmp.zip",
    "msprobe config_check -c bench.zip cmp.zip -o config_check_result",
    "msprobe config_check -vc npu.log bench.log",
)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="msprobe config_check",
        description="Pack the configuration of a training run; compare two packs, two checkpoints or two logs.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one = found.add_mutually_exclusive_group(required=True)
    one.add_argument(
        "-d", "--dump", nargs="*", metavar="FILE", help="pack environment, packages, and .sh and .yaml files"
    )
    one.add_argument("-c", "--compare", nargs=2, metavar=("BENCH", "CMP"), help="two packs (.zip), or two checkpoints")
    one.add_argument(
        "-vc", "--verl-compare", nargs=2, metavar=("NPU_LOG", "BENCH_LOG"), help="values that two runs of verl used"
    )
    one.add_argument(
        "-vv", "--verl-verify", nargs="+", metavar="FILE", help="[BENCH_YAML] LOG: values that a run of verl should use"
    )
    one.add_argument(
        "-sc", "--slime-compare", nargs=2, metavar=("NPU_LOG", "BENCH_LOG"), help="values that two runs of slime used"
    )
    found.add_argument(
        "-o", "--output", metavar="PATH",
        help="default: ./config_check_pack.zip (-d), ./config_check_result or ./ckpt_similarity.json (-c), "
        "./verl_param_compare_result (-vc), ./verl_param_verify_result (-vv), ./slime_param_compare_result (-sc)",
    )  # fmt: skip
    return found


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 when the files are written, whatever they say, as mindstudio-probe does."""
    given = parser().parse_args(arguments)
    guarded("msprobe config_check", lambda: _run(given))


def _run(given: argparse.Namespace) -> None:
    output: str | None = given.output
    bench, cmp = given.compare or ("", "")
    if given.dump is not None:
        _dump(given.dump, output or "./config_check_pack.zip")
    elif bench and bench.endswith(".zip"):
        _compare_packs(bench, cmp, output or "./config_check_result")
    elif bench:
        _compare_checkpoints(bench, cmp, output or "./ckpt_similarity.json")
    elif given.verl_verify:
        _verify(given.verl_verify, Path(output or "./verl_param_verify_result"))
    else:
        _compare_logs(given, output)


def _dump(files: list[str], output: str) -> None:
    from msprobe_client.compat.config_check import pack
    from msprobe_client.compat.config_check.static_members import static_members

    path = pack.suffix_checked(output)
    members, notes = static_members(files)
    pack.write(path, members)
    _say(notes)
    print(visible(f"The configuration is packed in: {path}."))


def _compare_packs(bench: str, cmp: str, output: str) -> None:
    from msprobe_client.compat.config_check.pack import suffix_checked
    from msprobe_client.compat.config_check.workbook import compare_packs

    target = Path(output) / "result.xlsx"
    summary = compare_packs(suffix_checked(bench), suffix_checked(cmp), target)
    for name, verdict in summary.rows:
        print(f"{name}: {verdict}")
    print(visible(f"The result is saved in: {target}."))


def _compare_checkpoints(one: str, other: str, output: str) -> None:
    from msprobe_client.compat.config_check.similarity import compare_checkpoints

    if other.endswith(".zip"):
        raise InvalidArgument(f"-c {one} {other}: a pack (.zip) is compared with another pack")
    count, notes = compare_checkpoints(Path(one), Path(other), Path(output))
    _say(notes)
    print(visible(f"{count} tensors are compared; the result is saved in: {output}."))


def _compare_logs(given: argparse.Namespace, output: str | None) -> None:
    from msprobe_client.compat.config_check import effective_values as values

    name, source = ("verl", values.VERL) if given.verl_compare else ("slime", values.SLIME)
    logs = given.verl_compare or given.slime_compare
    folder = Path(output or f"./{name}_param_compare_result")
    path = values.compare(Path(logs[0]), Path(logs[1]), folder, source)
    print(visible(f"The result is saved in: {path}."))


def _verify(files: list[str], output: Path) -> None:
    from msprobe_client.compat.config_check.effective_values import verify

    if len(files) > 2:
        raise InvalidArgument(f"-vv takes [BENCH_YAML] LOG, not {len(files)} files")
    if len(files) == 2 and Path(files[0]).suffix.lower() != ".yaml":
        raise InvalidArgument(f"-vv {files[0]}: the first of two files has to be a .yaml, the second a .log or .txt")
    path = verify(Path(files[0]) if len(files) == 2 else None, Path(files[-1]), output)
    print(visible(f"The result is saved in: {path}."))


def _say(notes: list[str]) -> None:
    for note in notes:
        print(visible(f"msprobe config_check: {note}"), file=sys.stderr)

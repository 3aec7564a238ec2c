"""msprobe overflow_check: where NaN and infinity begin in one step, in mindstudio-probe's file."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msprobe_client.compat.compare_command import guarded
from msprobe_client.errors import InvalidArgument
from msprobe_client.examples import plain
from msprobe_client.scratch import scratch_directory

if TYPE_CHECKING:
    from msprobe_client.comparison import Overflow

# Keys of data_info, for forward and backward records.
_PARTS = ("input_args", "input_kwargs", "input", "output")


EXAMPLES = ("msprobe overflow_check -i dump_a/step3 -o anomalies",)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="msprobe overflow_check",
        description="Find where NaN and infinity come from; writes anomaly_analyze_*.json.",
        epilog=plain(EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("-i", "--input_path", required=True, metavar="DIR", help="a step: rank0, rank1, ... are in it")
    found.add_argument("-o", "--output_path", default="./output", help="directory of the result (default ./output)")
    return found


def main(arguments: list[str]) -> NoReturn:
    """Ends with 0 whatever it finds, as mindstudio-probe does."""
    given = parser().parse_args(arguments)
    guarded("msprobe overflow_check", lambda: _check(Path(given.input_path), Path(given.output_path)))


def _check(step: Path, output: Path) -> None:
    from msprobe_client.client import Client

    if not step.is_dir():
        raise InvalidArgument(f"{step} is not a directory; name a step with rank0, rank1, ... in it")
    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        found = [item for item in client.overflow(step.resolve(), with_entries=True) if not item.first]
    path = write_anomalies(first_of_each_rank(found), output)
    print(
        f"The analyze result is saved in: {path}" if path else "No operation makes NaN or infinity of finite numbers."
    )


def first_of_each_rank(found: list[Overflow]) -> list[Overflow]:
    """The first operation that makes NaN or infinity, of each rank where it follows the fewest communications."""
    first: dict[tuple[int, Any], Overflow] = {}
    for item in found:
        first.setdefault((item.step, item.rank), item)
    if not first:
        return []
    step = min(item.step for item in first.values())
    of_step = [item for item in first.values() if item.step == step]
    least = min(item.collectives_before for item in of_step)
    return [item for item in of_step if item.collectives_before == least]


def write_anomalies(found: list[Overflow], output: Path) -> Path | None:
    """Writes anomaly_analyze_{ns}.json of origins that have their entries; None: nothing to write."""
    if not found:
        return None
    from msprobe_client.output.whole_file import whole_file

    nodes: dict[str, list[Any]] = {}
    for item in found:
        name = f"rank_{item.rank.number if item.rank.kind == 'rank' else 0}"
        nodes.setdefault(name, []).append(_node(item))
    path = output / f"anomaly_analyze_{time.time_ns()}.json"
    with whole_file(path) as scratch:
        scratch.write_text(json.dumps(nodes, indent=2), encoding="utf-8")
    return path


def _node(item: Overflow) -> dict[str, Any]:
    record = json.loads(item.entry_json) if item.entry_json else {}
    return {
        "op_name": item.op,
        "data_info": {part: record[part] for part in _PARTS if part in record},
        "construct_info": list(item.modules),
        "stack_info": list(item.stack),
    }

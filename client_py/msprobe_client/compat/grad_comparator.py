"""mindstudio-probe's GradComparator: compares the signs of gradients that two runs of task grad_probe left in files."""

from __future__ import annotations

import ast
import csv
import io
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from msprobe_client.errors import DataError
from msprobe_client.output import warn
from msprobe_client.output.whole_file import closed_to_writers, whole_file

SUMMARY = "summary"
_MAGIC = b"\x93NUMPY"


def compare_distributed(target: str | Path, golden: str | Path, output: str | Path) -> None:
    """Compares rank{R} of two dump_path, for every R that both have, into output/rank{R}."""
    ranks = _common(Path(target), Path(golden), "rank")
    if not ranks:
        raise DataError(f"{target} and {golden} have no directory rank{{R}} in common")
    for rank in ranks:
        compare(Path(target) / f"rank{rank}", Path(golden) / f"rank{rank}", Path(output) / f"rank{rank}")


def compare(target: str | Path, golden: str | Path, output: str | Path) -> None:
    """Compares two directories rank{R}: similarities.csv, and similarities_picture/*.png where matplotlib is there."""
    ours, theirs, output = Path(target), Path(golden), Path(output)
    steps = _common(ours, theirs, "step")
    if not steps:
        raise DataError(
            f"{ours} and {theirs} have no directory step{{N}} in common; task grad_probe leaves signs at levels L1, L2"
        )
    series: dict[str, list[float]] = {name: [] for name in _order(ours, theirs)}
    series[SUMMARY] = []
    for step in steps:
        equal_of_all = elements_of_all = 0
        for name, similarities in series.items():
            if name == SUMMARY:
                continue
            pair = (ours / f"step{step}" / f"{name}.npy", theirs / f"step{step}" / f"{name}.npy")
            if not all(path.is_file() for path in pair):
                similarities.append(math.nan)  # a parameter that had no gradient at this step
                continue
            equal, elements = _equal_signs(*pair)
            similarities.append(equal / elements if elements else 0.0)
            equal_of_all, elements_of_all = equal_of_all + equal, elements_of_all + elements
        series[SUMMARY].append(equal_of_all / elements_of_all if elements_of_all else 0.0)
    _write_table(output / "similarities.csv", steps, series)
    _draw(output / "similarities_picture", steps, series)


def _common(target: Path, golden: Path, prefix: str) -> list[int]:
    """Numbers of the directories that both have."""
    for path in (target, golden):
        if not path.is_dir():
            raise DataError(f"{path} is no directory; it should be what task grad_probe wrote")
    names = {entry.name for entry in target.iterdir() if entry.is_dir() and (golden / entry.name).is_dir()}
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(number) for number in numbers if number.isascii() and number.isdecimal())


def _order(target: Path, golden: Path) -> list[str]:
    """The parameters, as grad_summary_{N}.csv has them; those that only later ones have stand behind."""
    found: dict[str, None] = {}
    for table in sorted(target.glob("grad_summary_*.csv"), key=lambda path: (len(path.name), path.name)):
        if not (golden / table.name).is_file():
            continue
        with table.open(encoding="utf-8-sig", newline="") as file:
            found |= dict.fromkeys(row["param_name"] for row in csv.DictReader(file) if row.get("param_name"))
    if not found:
        raise DataError(f"{target} and {golden} have no grad_summary_{{N}}.csv with parameters in common")
    return list(found)


def _equal_signs(one: Path, other: Path) -> tuple[int, int]:
    """How many elements have the same sign, and how many there are."""
    (shape, ours), (other_shape, theirs) = _signs(one), _signs(other)
    if shape != other_shape:
        raise DataError(f"{one} has the shape {list(shape)}, {other} has {list(other_shape)}; they should be equal")
    different = (int.from_bytes(ours, "little") ^ int.from_bytes(theirs, "little")).bit_count()
    return len(ours) - different, len(ours)


def _signs(path: Path) -> tuple[tuple[int, ...], bytes]:
    """The shape of a .npy file of bools, and a byte, 0 or 1, for each element."""
    content = path.read_bytes()
    wrong = DataError(f"{path} is no .npy file of bools, as task grad_probe writes them")
    if content[:6] != _MAGIC or len(content) < 12:
        raise wrong
    begin, form = (10, "<H") if content[6] == 1 else (12, "<I")
    end = begin + struct.unpack_from(form, content, 8)[0]
    try:
        header = ast.literal_eval(content[begin:end].decode("latin-1"))
        shape = tuple(int(size) for size in header["shape"])
        is_bool, by_columns = header["descr"] in ("|b1", "?"), bool(header["fortran_order"])
    except (ValueError, SyntaxError, KeyError, TypeError):
        raise wrong from None
    signs = content[end:]
    if not is_bool or len(signs) != math.prod(shape) or (by_columns and len(shape) > 1):
        raise wrong
    return shape, signs.translate(_TRUE)


_TRUE = bytes([0]) + bytes([1]) * 255


def _write_table(path: Path, steps: Sequence[int], series: dict[str, list[float]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["step", *map(str, steps)])
    writer.writerows(
        [name, *("" if math.isnan(value) else value for value in values)] for name, values in series.items()
    )
    with whole_file(path) as scratch, open(scratch, "wb", opener=closed_to_writers) as file:
        file.write(text.getvalue().encode("utf-8-sig"))


def _draw(directory: Path, steps: Sequence[int], series: dict[str, list[float]]) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        warn("similarities_picture is not drawn: it needs matplotlib (pip install matplotlib)", "msprobe")
        return
    for name, values in series.items():
        figure = Figure()
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.plot(steps, values)
        axes.set(xlabel="steps", ylabel="similarities", title=f"{name}_similarities")
        with whole_file(directory / f"{name.replace(os.sep, '_')}_similarities.png") as scratch:
            figure.savefig(scratch, format="png")


__all__ = ["compare", "compare_distributed"]

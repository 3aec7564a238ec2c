"""mindstudio-probe's SingleComparator.compare: the tensors that two programs saved by SingleSave, in one workbook a
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msprobe_client.compat.single_arrays import compare_arrays
from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.output import warn
from msprobe_client.output.extras import extra
from msprobe_client.output.whole_file import whole_file
from msprobe_client.output.xlsx_rows import put, workbook

# As mindstudio-probe has them: scripts look for these words.
HEADER = (
    "step", "rank", "micro_step", "id", "shape1", "shape2",
    "相同元素百分比(%)", "首个不匹配元素索引", "最大绝对误差", "最大相对误差",
    "误差在千分之一内元素占比(%)", "误差在百分之一内元素占比(%)",
)  # fmt: skip
_MOST_AT_ONCE = 192

# Step, rank, micro step, and which member: its place in a list, its key in a dict, 0 for a tensor alone.
Place = tuple[int, int, int, int | str]


def compare(one: str | Path, other: str | Path, output: str | Path, at_once: int) -> None:
    """Writes output/{name}.xlsx of every name that either directory has. Files that cannot be read, and names without a
    partner, are named on stderr.
    """
    if isinstance(at_once, bool) or not isinstance(at_once, int) or not 1 <= at_once <= _MOST_AT_ONCE:
        raise InvalidArgument(f"num_processes is {at_once!r}; it is a number from 1 to {_MOST_AT_ONCE}")
    extra("numpy", "xlsx")
    sides = [_saved(Path(each)) for each in (one, other)]
    names = sorted(sides[0].keys() | sides[1].keys())
    with ThreadPoolExecutor(at_once) as pool:  # numpy computes without Python's lock
        for _ in pool.map(lambda name: _compare_name(name, sides[0], sides[1], Path(output)), names):
            pass


def _saved(dump: Path) -> dict[str, dict[Place, Path]]:
    """Name -> place -> file."""
    data = dump / "data"
    if not data.is_dir():
        raise DataError(f"{dump} has no directory data; it should be the dump_path of a SingleSave")
    found = {name.name: dict(_places(name)) for name in sorted(data.iterdir()) if name.is_dir()}
    if not any(found.values()):
        raise DataError(f"{data} has no file {{name}}/step{{S}}/rank{{R}}/[micro_step{{M}}/]{{name}}.npy")
    return found


def _places(name: Path) -> Iterator[tuple[Place, Path]]:
    for step, of_step in _numbered(name, "step"):
        for rank, of_rank in _numbered(of_step, "rank"):
            for micro, directory in [(0, of_rank), *_numbered(of_rank, "micro_step")]:
                for file in directory.glob("*.npy"):
                    yield (step, rank, micro, _member(file.stem, name.name)), file


def _numbered(directory: Path, prefix: str) -> list[tuple[int, Path]]:
    found = ((re.fullmatch(rf"{prefix}(\d+)", entry.name, re.ASCII), entry) for entry in directory.iterdir())
    return sorted((int(match[1]), entry) for match, entry in found if match and entry.is_dir())


def _member(stem: str, name: str) -> int | str:
    rest = stem.removeprefix(name)
    numbered = re.fullmatch(r"[._](\d+)", rest, re.ASCII)
    return int(numbered[1]) if numbered else rest.removeprefix(".") or 0


def _compare_name(
    name: str, ours: dict[str, dict[Place, Path]], theirs: dict[str, dict[Place, Path]], output: Path
) -> None:
    one, other = ours.get(name, {}), theirs.get(name, {})
    for place in sorted(one.keys() ^ other.keys(), key=_order)[:1]:
        alone = len(one.keys() ^ other.keys())
        file = one.get(place) or other[place]
        warn(f"{name}: {alone} of its tensors are on one side alone, {file} the first of them", "msprobe")
    rows = (_row(place, one[place], other[place]) for place in sorted(one.keys() & other.keys(), key=_order))
    with whole_file(output / f"{name}.xlsx") as scratch, workbook(str(scratch)) as book:
        sheet = book.add_worksheet("Sheet1")
        for at, cells in enumerate([list(HEADER), *filter(None, rows)]):
            for column, value in enumerate(cells):
                put(sheet, at, column, value, None)


def _order(place: Place) -> tuple[Any, ...]:
    *numbers, member = place
    return (*numbers, isinstance(member, str), member)


def _row(place: Place, one: Path, other: Path) -> list[Any] | None:
    left, right = _loaded(one), _loaded(other)
    if left is None or right is None:
        return None
    found = compare_arrays(left, right)
    if left.shape != right.shape:
        warn(f"{one} has the shape {list(left.shape)}, {other} has {list(right.shape)}: a part is compared", "msprobe")
    return [
        *place, str(list(left.shape)), str(list(right.shape)),
        found.same_percentage, found.first_mismatch_index, found.max_abs_error, found.max_relative_error,
        found.percentage_within_thousandth, found.percentage_within_hundredth,
    ]  # fmt: skip


def _loaded(path: Path) -> Any:
    import numpy

    try:
        found = numpy.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        warn(f"{path} is no .npy file that can be read, and is left out: {error}", "msprobe")
        return None
    if found.dtype.kind in "biufc":
        return found
    warn(f"{path} holds {found.dtype}, which are no numbers, and is left out", "msprobe")
    return None

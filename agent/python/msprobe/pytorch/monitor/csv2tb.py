"""``from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step``, as in mindstudio-probe."""

from __future__ import annotations

import csv
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from msprobe._common import log
from msprobe._common.errors import MsprobeError

KINDS = (
    "actv",
    "actv_grad",
    "exp_avg",
    "exp_avg_sq",
    "grad_unreduced",
    "grad_reduced",
    "param_origin",
    "param_updated",
)
_DIRECTORY = re.compile(r"(?P<time>[\w-]{0,20})-rank(?P<rank>\d{1,5})-.*")
_TIME = "%b%d_%H-%M-%S"
_NAMES = ("vpp_stage", "name", "step", "micro_step")
_NO_NUMBERS = ("id", "shape", "dtype")


def csv2tensorboard_by_step(
    monitor_path: str,
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: str | None = None,
) -> None:
    """Makes event files of TrainerMon's csv files: output_dirpath/rank{R}/{kind}, tags vp{V}:{name}[:micro{M}]/{op}.

    monitor_path: has {Mmmdd_HH-MM-SS}-rank{R}-{id}. time_start, time_end: the first and last of these times.
    data_type_list: of KINDS, None for all. output_dirpath: None, {now}-csv2tensorboard_by_step below monitor_path.
    process_num has no effect: one pass is faster than the start of a process. Needs tensorboard. Raises MsprobeError.
    """
    if isinstance(process_num, bool) or not isinstance(process_num, int) or process_num < 1:
        raise MsprobeError(f"process_num is {process_num!r}; it is a number from 1")
    kinds = KINDS if data_type_list is None else tuple(data_type_list)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or isinstance(data_type_list, str):
        raise MsprobeError(f"data_type_list is {data_type_list!r}; it is a list of {', '.join(KINDS)}")
    directories = _directories(Path(monitor_path), _moment(time_start, "time_start"), _moment(time_end, "time_end"))
    output = Path(output_dirpath or Path(monitor_path) / f"{time.strftime(_TIME)}-csv2tensorboard_by_step")
    for rank, directory in sorted(directories.items()):
        for kind in kinds:
            scalars = _scalars(directory, kind)
            if scalars:
                _write(output / f"rank{rank}" / kind, scalars)
    log.info(f"output has been saved to: {output}")


def _moment(text: str | None, name: str) -> time.struct_time | None:
    try:
        return None if text is None else time.strptime(f"2024 {text}", f"%Y {_TIME}")
    except (ValueError, TypeError):
        raise MsprobeError(f"{name} is {text!r}; it is written as in Dec03_21-34-40") from None


def _directories(root: Path, start: time.struct_time | None, end: time.struct_time | None) -> dict[int, Path]:
    """Of several of one rank the last."""
    if not root.is_dir():
        raise MsprobeError(f"{root} is no directory; it should be the output of TrainerMon")
    if start is not None and end is not None and start > end:
        raise MsprobeError("time_start is after time_end; give them in their order")
    found: dict[int, Path] = {}
    for path in sorted(root.iterdir(), key=lambda path: path.name):
        match = _DIRECTORY.fullmatch(path.name)
        if match is None or not path.is_dir():
            continue
        moment = _moment(match["time"], path.name)
        if moment is not None and (start is None or moment >= start) and (end is None or moment <= end):
            found[int(match["rank"])] = path
    if not found:
        raise MsprobeError(f"{root} has no directory {{Mmmdd_HH-MM-SS}}-rank{{R}}-{{id}} of these times")
    return found


def _scalars(directory: Path, kind: str) -> dict[str, list[tuple[int, float]]]:
    """Tag -> steps and values, in order."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(directory.iterdir()):
        if not re.fullmatch(rf"{kind}_\d+-\d+\.csv", path.name):
            continue
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                try:
                    name = f"vp{row['vpp_stage']}:{row['name']}"
                    name += f":micro{row['micro_step']}" if row.get("micro_step") else ""
                    for op, value in row.items():
                        if op not in _NAMES and op not in _NO_NUMBERS:
                            found.setdefault(f"{name}/{op}", []).append((int(row["step"]), float(value)))
                except (KeyError, TypeError, ValueError) as error:
                    raise MsprobeError(f"{path} is no csv file of TrainerMon: {error!r}") from None
    return {tag: sorted(values, key=lambda pair: pair[0]) for tag, values in found.items()}


def _write(directory: Path, scalars: dict[str, list[tuple[int, float]]]) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MsprobeError("event files need tensorboard: pip install tensorboard") from None
    if directory.exists():
        log.warning(f"{directory} is replaced")
        shutil.rmtree(directory)
    writer = SummaryWriter(str(directory))
    for tag, values in scalars.items():
        for step, value in values:
            writer.add_scalar(tag, value, step)
    writer.close()


__all__ = ["csv2tensorboard_by_step"]

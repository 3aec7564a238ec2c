"""The first of the anomalies that TrainerMon found on all ranks, as in mindstudio-probe:

python -m msprobe.core.monitor.anomaly_processor -d monitor_output/.../anomaly_detected [-o DIR] [-k 8] [-s '[2, 3]']
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from typing import Any

from msprobe._common.errors import MsprobeError

# The last part of a tag -> when in a step it comes.
_FORWARD, _BACKWARD, _OPTIMIZER, _ELSE = 0, 1, 2, -1
_STAGES = {
    "actv": _FORWARD,
    "actv_grad": _BACKWARD,
    "pre_grad": _BACKWARD,
    "post_grad": _BACKWARD,
    "acc_grad": _BACKWARD,
    "exp_avg": _OPTIMIZER,
    "exp_avg_sq": _OPTIMIZER,
}


def first_anomalies(detected: Path, steps: list[int], most: int) -> list[dict[str, Any]]:
    """Of detected/rank{R}/anomaly.json: by step, micro step and stage; forward by stages of the pipeline upwards, then
    downwards; by call. steps: empty for all. Raises MsprobeError, which names the file.
    """
    if not detected.is_dir():
        raise MsprobeError(f"{detected} is no directory; it should be the anomaly_detected of TrainerMon")
    found = [
        anomaly
        for path in sorted(detected.glob("*/anomaly.json"))
        for anomaly in _read(path)
        if not steps or anomaly["step"] in steps
    ]
    return sorted(found, key=_order)[:most]


def write(anomalies: list[dict[str, Any]], directory: Path) -> Path:
    """directory/anomaly_analyse.json."""
    path = directory / "anomaly_analyse.json"
    found = {f"{each['tag_name']}_step_{each['step']}_call_{each['call_id']}": each for each in anomalies}
    try:
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
    except OSError as error:
        raise MsprobeError(f"{path} cannot be written: {error.strerror}") from None
    return path


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        found = list(json.loads(path.read_text(encoding="utf-8")).values())
        for anomaly in found:
            _order(anomaly)
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise MsprobeError(f"{path} is no anomaly.json of TrainerMon: {error!r}") from None
    return found


def _order(anomaly: dict[str, Any]) -> tuple[int, ...]:
    stage = _STAGES.get(anomaly["tag_name"].split("/")[-1], _ELSE)
    sign = 1 if stage == _FORWARD else -1
    places = (sign * int(anomaly["vpp_stage"]), sign * int(anomaly["pp_stage"]))
    return (int(anomaly["step"]), int(anomaly["micro_step"]), stage, *places, int(anomaly["call_id"]))


def _steps(text: str) -> list[int]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, list) or not all(isinstance(step, int) for step in found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of steps; write [2, 3]")
    return found


def _most(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of anomalies; write 1 or more")
    return int(text)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m msprobe.core.monitor.anomaly_processor",
        description="Write the first anomalies of all ranks into anomaly_analyse.json.",
    )
    parser.add_argument("-d", "--data_path", required=True, type=Path, metavar="DIR", help="with rank{R}/anomaly.json")
    parser.add_argument("-o", "--out_path", type=Path, metavar="DIR", help="of anomaly_analyse.json (default DIR)")
    parser.add_argument("-k", "--topk", type=_most, default=8, metavar="N", help="how many (default 8)")
    parser.add_argument("-s", "--step", type=_steps, default=[], metavar="LIST", help="which steps, as [2, 3]")
    given = parser.parse_args(arguments)
    try:
        found = first_anomalies(given.data_path, given.step, given.topk)
        path = write(found, given.out_path or given.data_path)
    except MsprobeError as error:
        print(f"anomaly_processor: {error}", file=sys.stderr)
        sys.exit(3)
    for number, anomaly in enumerate(found):
        print(f"{number}: {anomaly['message']}")
    print(f"anomaly_analyse.json is at {path.parent}")


if __name__ == "__main__":
    main()


__all__ = ["first_anomalies", "main", "write"]

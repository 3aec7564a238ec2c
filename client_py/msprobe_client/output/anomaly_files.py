"""anomaly.json of each rank and anomaly_analyse.json of alarms, as mindstudio-probe's monitor writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msprobe_client.monitor_client import Alarm
from msprobe_client.output.whole_file import whole_file

_MOST = 8  # in anomaly_analyse.json, as anomaly_processor has it by default
# How a series of ours ends, without its statistic -> the task in that tool's tags.
_TASKS = (
    (r"\.parameters_grad\.(unreduced|micro_batch\.\d+)", "pre_grad"),
    (r"\.parameters_grad\.(reduced|clipped)", "post_grad"),
    (r"\.parameter", "param"),
    (r"\.(exp_avg_sq|exp_avg|momentum_buffer)", None),
    (r"\.forward\.\w+\.[\w.]+", "actv"),
    (r"\.backward\.\w+\.[\w.]+", "actv_grad"),
)
# When in a step that tool looks for each.
_ORDER = {"actv": 0, "actv_grad": 1, "pre_grad": 1, "post_grad": 1, "exp_avg": 2, "exp_avg_sq": 2}


def write(alarms: Iterable[Alarm], directory: Path) -> list[Path]:
    """directory/rank{R}/anomaly.json, one first offence an alarm, and directory/anomaly_analyse.json, the first eight
    of all. Returns the files."""
    by_rank: dict[str, dict[str, Any]] = {}
    found = []
    for alarm in alarms:
        key, anomaly = _anomaly(alarm)
        by_rank.setdefault(str(alarm.rank), {})[key] = anomaly
        found.append((_place(anomaly), key, anomaly))
    found.sort(key=lambda each: each[:2])
    analysed = {key: anomaly for _, key, anomaly in found[:_MOST]}
    files = [(directory / rank / "anomaly.json", anomalies) for rank, anomalies in sorted(by_rank.items())]
    files.append((directory / "anomaly_analyse.json", analysed))
    for path, anomalies in files:
        with whole_file(path) as scratch:
            scratch.write_text(json.dumps(anomalies, indent=1), encoding="utf-8")
    return [path for path, _ in files]


def _anomaly(alarm: Alarm) -> tuple[str, dict[str, Any]]:
    name, _, op = alarm.series.rpartition(":")
    if not name or not re.fullmatch(r"\w+", op):
        name, op = alarm.series, "value"
    task = None
    for ending, known in _TASKS:
        if match := re.search(ending + "$", name):
            name, task = name[: match.start()], known or match[1]
            break
    tag = f"0:{name}/{alarm.rank}" + (f"/{task}" if task else "")
    anomaly = {
        "rank": alarm.rank.number,
        "step": alarm.step,
        "micro_step": 0,
        "pp_stage": 0,
        "vpp_stage": 0,
        "call_id": alarm.number,
        "tag_name": tag,
        "message": f"Rule {alarm.rule} reports anomaly signal in {(tag, op)} at step {alarm.step}, "
        f"current value {alarm.value}: {alarm.why}.",
        "group_mates": [rank.number for rank in alarm.ranks if rank != alarm.rank],
    }
    return f"{tag}_step_{alarm.step}_call_{alarm.number}", anomaly


def _place(anomaly: dict[str, Any]) -> tuple[int, int, int]:
    task = str(anomaly["tag_name"]).rpartition("/")[2]
    return (int(anomaly["step"]), _ORDER.get(task, -1), int(anomaly["call_id"]))

"""The files of TrainerMon, as mindstudio-probe writes them: csv files by kind and steps, event files, anomaly.json."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe._common import log

Metrics = Mapping[str, Mapping[str, Any]]  # tag -> op -> value


class MonitorFiles:
    """Writes the numbers of a step into a directory. tag: "0:fc.weight/rank0/post_grad"."""

    def __init__(self, directory: Path, config: Any) -> None:
        self._directory, self._config = directory, config
        self._events: Any = None
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)

    def write(self, kind: str, metrics: Metrics, step: int, *, micro_step: bool) -> None:
        """kind: the beginning of the file's name. micro_step: names hold it, and it is a column."""
        if not metrics:
            return
        if self._config.format == "csv":
            self._write_csv(kind, metrics, step, micro_step)
        elif self._config.format == "tensorboard":
            self._write_events(metrics, step)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()

    def _write_csv(self, kind: str, metrics: Metrics, step: int, micro_step: bool) -> None:
        count = self._config.step_count_per_record
        first = step // count * count
        path = self._directory / f"{kind}_{first}-{first + count - 1}.csv"
        named: dict[str, list[Any]] = {}
        for tag, values in metrics.items():
            named.setdefault(tag.split("/")[0], []).extend(values.values())
        rows: list[list[Any]] = []
        for name, numbers in named.items():
            rows.append([*name.split(":"), *numbers])
            rows[-1].insert(2, step)  # of a collective, whose name has one part, behind its first number, as the tool's
        longest = max(map(len, rows))
        rows = [row + [None] * (longest - len(row)) for row in rows]
        is_new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                header = ["vpp_stage", "name", "step", *(["micro_step"] if micro_step else []), *self._config.ops]
                writer.writerow(header)
            writer.writerows(_as_table(rows, self._config.ndigits))

    def _write_events(self, metrics: Metrics, step: int) -> None:
        if self._events is None:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(self._directory))
        for tag, values in metrics.items():
            for op, value in values.items():
                if isinstance(value, (int, float)):
                    self._events.add_scalar(f"{tag}_{op}", value, step)


def _as_table(rows: list[list[Any]], digits: int) -> list[list[Any]]:
    """Rounded. Beside floats, and beside what is missing, ints are floats: a column of the tool's has one type."""
    mixed = [any(value is None or isinstance(value, float) for value in column) for column in zip(*rows)]
    return [
        [_shown(float(value) if floats and type(value) is int else value, digits) for value, floats in zip(row, mixed)]
        for row in rows
    ]


def _shown(value: Any, digits: int) -> Any:
    if not isinstance(value, float):
        return "nan" if value is None else value
    if not math.isfinite(value):
        return repr(value)
    scale = 10.0**digits
    scaled = value * scale
    if not math.isfinite(scaled):
        return repr(value)
    rounded = round(scaled) / scale
    return repr(math.copysign(rounded, value) if rounded == 0 else rounded)


class Anomalies:
    """The two rules of mindstudio-probe's monitor over its own numbers, and anomaly.json."""

    def __init__(self, config: Any, base: Path, rank: int, stage: int, mates: list[int]) -> None:
        self._config, self._rank, self._stage, self._mates = config, rank, stage, mates
        self._averages: dict[tuple[str, str], float] = {}
        self.calls: dict[str, int] = {}  # tag -> its place among the calls of the step
        self._path = base / "anomaly_detected" / f"rank{rank}" / "anomaly.json"
        self._found: dict[str, Any] = {}
        if config.alert.get("dump"):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._path.write_text("{}")

    def look(self, metrics: Metrics, step: int) -> None:
        for tag, values in metrics.items() if self._config.rules else ():
            for op, value in values.items():
                if isinstance(value, (int, float)):
                    self._look_at(tag, op, value, step)

    def write(self) -> None:
        if self._config.alert.get("dump") and self._found:
            self._path.write_text(json.dumps(self._found, indent=1))

    def _look_at(self, tag: str, op: str, value: float, step: int) -> None:
        average = self._averages.setdefault((tag, op), abs(value))
        self._averages[tag, op] = 0.99 * average + (1 - 0.99) * abs(value)
        rule = next((rule["rule_name"] for rule in self._config.rules if _offends(rule, value, average)), None)
        if rule is None or (rule == "AnomalyTurbulence" and op not in ("norm", "mean")):
            return
        message = (
            f"Rule {rule} reports anomaly signal in {(tag, op)} at step {step}, "
            f"current value {value}, history mean {average}."
        )
        log.info(f"> {message}")
        if not self._config.alert.get("dump"):
            return
        call = self.calls.get(tag, -1)
        self._found[f"{tag}_step_{step}_call_{call}"] = {
            "rank": self._rank,
            "step": step,
            "micro_step": 0,
            "pp_stage": self._stage,
            "vpp_stage": int(tag.split(":")[0]),
            "call_id": call,
            "tag_name": tag,
            "message": message,
            "group_mates": self._mates,
        }


def _offends(rule: dict[str, Any], value: float, average: float) -> bool:
    threshold: float | None = (rule.get("args") or {}).get("threshold")
    if rule["rule_name"] == "AnomalyNan":
        return math.isnan(value) or (threshold is not None and abs(value) > threshold)
    return threshold is not None and abs(value) > average * (1 + threshold)


__all__ = ["Anomalies", "Metrics", "MonitorFiles"]

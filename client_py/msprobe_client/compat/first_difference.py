"""msprobe compare -da: finds the operation that differs first, and writes the files of mindstudio-probe 26.2.0.

compare_result_rank{R}_{time}.json has every operation of a rank with its rows of the result table.
diff_analyze_{ns}.json has the first difference of each rank in which it comes after the fewest communications.
"""

from __future__ import annotations

import ast
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_client.compat.result_files import result_file_names
from msprobe_client.compat.result_table import BENCH_STATISTICS, NPU_STATISTICS, ResultTable
from msprobe_client.output.whole_file import whole_file

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.proto.analysis_pb2 import PointToPoint

_METRICS = ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr")
_LIMIT_PERCENT = 50.0
# Outputs that are ignored, by operation.
_PASSED_OVER = {"npu_fusion_attention": (4, 5)}
_IGNORED = ("Torch.empty", "Torch.fill", "Tensor.__setitem__")
_COMMUNICATION = ("Distributed.", "MintDistributed.", "Communication.")
_SHOWN = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "NPU MD5")


@dataclass(frozen=True, slots=True)
class Differing:
    """The first operation of a rank that differs."""

    name: str
    rows: list[dict[str, Any]]
    communications_before: int


class _RankJson:
    """A table's form; keeps the first difference."""

    def __init__(self) -> None:
        self.first: Differing | None = None
        self._messages: dict[str, dict[str, PointToPoint]] = {}
        self._names = result_file_names("json")

    def file_name(self, chunk: Any) -> str:
        """Name of the next table's file; keeps the table's messages."""
        self._messages = {
            "NPU": {message.name: message for message in chunk.target_messages},
            "Bench": {message.name: message for message in chunk.golden_messages},
        }
        return self._names(chunk)

    def write(self, table: Path, target: Path) -> None:
        communications = 0
        found: dict[str, Any] = {}
        for name, rows in _operations(ResultTable.open(table)):
            for row in rows:
                row.update(self._peers(row))
            same = not _differs(name, rows)
            found[name] = {"is_same": same, "op_items": rows}
            if name.startswith(_COMMUNICATION):
                communications += 1
            elif not same and self.first is None and not any(ignored in name for ignored in _IGNORED):
                self.first = Differing(name, rows, communications)
        with whole_file(target) as scratch, scratch.open("w", encoding="utf-8") as file:
            json.dump(found, file, indent=4)

    def _peers(self, row: dict[str, Any]) -> dict[str, Any]:
        """The sends and receives of the row's tensors, each with its own row."""
        peers: dict[str, Any] = {}
        for what in ("op", "peer"):
            for side, messages in self._messages.items():
                message = messages.get(row[f"{side} Name"])
                peers[f"{side} P2POp {what}"] = "None" if message is None else getattr(message, what)
        return peers


def write_first_difference(
    client: Client, target: Path, golden: Path, output: Path, *, fuzzy: bool, mapping: Any, **where: Any
) -> Iterator[str]:
    """Writes the files, and gives each path once its file is there. Without a difference there is no diff_analyze."""
    form = _RankJson()
    first: dict[str, Differing] = {}
    for report in client.compare_tables(
        str(target),
        str(golden),
        output,
        file_name=form.file_name,
        form=form,
        matching="fuzzy" if fuzzy else "exact",
        mapping=mapping,
        **where,
    ):
        if form.first is not None:
            number = report.rank.number if report.rank.kind == "rank" else 0
            first.setdefault(f"rank_{number}", form.first)
            form.first = None
        yield report.path
    if not first:
        return
    least = min(each.communications_before for each in first.values())
    nodes = {rank: [_node(each)] for rank, each in first.items() if each.communications_before == least}
    path = output / f"diff_analyze_{time.time_ns()}.json"
    with whole_file(path) as scratch:
        scratch.write_text(json.dumps(nodes, indent=2), encoding="utf-8")
    yield str(path)


def _operations(table: ResultTable) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    rows = (_item(dict(zip(table.header, cells, strict=True))) for cells in table.rows())
    for name, group in itertools.groupby(rows, key=lambda row: row["api_origin_name"]):
        yield name, list(group)


def _item(row: dict[str, Any]) -> dict[str, Any]:
    name = row["NPU Name"]
    state, at = next(
        (
            (state, name.find(f".{state}"))
            for state in ("input", "output", "parameters_grad", "parameters")
            if f".{state}" in name
        ),
        ("parameters_grad", -1),
    )
    operation = name[:at] if at >= 0 and state != "parameters_grad" else _gradient_operation(name)
    for statistics, dtype in ((NPU_STATISTICS, row["NPU Dtype"]), (BENCH_STATISTICS, row["Bench Dtype"])):
        for statistic in statistics:
            value = row.get(statistic)
            if value in ("inf", "-inf") and dtype != "<class 'str'>":
                row[statistic] = float(value)
    stack = row.get("NPU_Stack_Info")
    if isinstance(stack, str) and stack.startswith("["):
        row["NPU_Stack_Info"] = ast.literal_eval(stack)
    verdict = {"Result": "N/A", "Err_message": "No bench data matched."}
    if row["Bench Name"] != "N/A":
        verdict = dict.fromkeys(verdict, "")
    if row.get("Requires_grad Consistent") is False:
        verdict["Err_message"] += "Requires_grad inconsistent. "
    return {**row, **verdict, "state": state, "api_origin_name": operation}


def _gradient_operation(name: str) -> str:
    """Module.fc.Linear.parameters_grad.0 of Module.fc.Linear.parameters_grad.0.weight"""
    before, _, after = name.partition(".parameters_grad")
    number = after.split(".")[1] if after.startswith(".") else ""
    return f"{before}.parameters_grad" + (f".{number}" if number.isdecimal() else "")


def _differs(name: str, rows: list[dict[str, Any]]) -> bool:
    passed_over = _PASSED_OVER.get(name.split(".")[-3] if name.count(".") >= 3 else "", ())
    outputs = [row for row in rows if row["state"] == "output"]
    return any(_row_differs(row) for index, row in enumerate(outputs) if index not in passed_over)


def _row_differs(row: dict[str, Any]) -> bool:
    if "NPU MD5" in row:
        return bool(row["Bench Name"] != "N/A" and row["NPU MD5"] != row["BENCH MD5"])
    values = (str(row.get(metric, "")) for metric in _METRICS)
    return any(value.endswith("%") and float(value[:-1]) > _LIMIT_PERCENT for value in values)


def _node(found: Differing) -> dict[str, Any]:
    info: dict[str, dict[str, Any]] = {"input": {}, "output": {}}
    for row in found.rows:
        if row["state"] in info:
            shown = {name: row[name] for name in _SHOWN if name in row}
            info[row["state"]][row["NPU Name"]] = {**shown, "NPU P2POp peer": row["NPU P2POp peer"]}
    stack = next((row["NPU_Stack_Info"] for row in found.rows if row.get("NPU_Stack_Info", "N/A") != "N/A"), None)
    return {"op_name": found.name, "data_info": info, "stack_info": stack}

"""cc_distribution of mindstudio-probe's monitors: numbers of what collectives take and give, by operation."""

from __future__ import annotations

import json
import math
import re
import traceback
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from msprobe._common import log
from msprobe._common.tensor_numbers import narrowed
from msprobe.pytorch._communication_watch import CommunicationWatch
from msprobe.pytorch._tensor_numbers import tensor_numbers

# Those that the tool watches.
_OPERATIONS = tuple(
    "send recv isend irecv batch_isend_irecv broadcast all_reduce reduce scatter reduce_scatter _reduce_scatter_base "
    "reduce_scatter_tensor all_gather gather _all_gather_base all_gather_into_tensor".split()
)
_SUMMED = ("norm", "nans")
_AVERAGED = ("mean", "zeros")


class CommunicationNumbers:
    """Collects until take(). Numbers of several calls of one operation become one: the tool's sums and averages.

    fields: cc_codeline, cc_pre_hook and cc_log_only of the tool's configuration.
    """

    def __init__(self, fields: dict[str, Any], ops: Sequence[str], eps: float, rank: int) -> None:
        self._lines = [re.compile(each) for each in fields.get("cc_codeline") or []]
        self._before, self._log_only = bool(fields.get("cc_pre_hook")), bool(fields.get("cc_log_only"))
        self._ops, self._eps, self._rank = list(ops), eps, rank
        self._numbers: dict[str, dict[str, list[dict[str, Any]]]] = {}  # operation -> tag -> of each call
        self._stacks: dict[str, set[str]] = {}
        self._watch = CommunicationWatch(self, _OPERATIONS, inner=True)

    def close(self) -> None:
        self._watch.close()

    def take(self) -> dict[str, dict[str, Any]]:
        """tag -> op -> value. What was collected is forgotten."""
        if self._stacks:
            shown = {operation: [each.split(";") for each in stacks] for operation, stacks in self._stacks.items()}
            log.info(f"> Used communication ops and corresponding stack\n{json.dumps(shown)}")
            self._stacks.clear()
        taken = {tag: self._together(calls) for tags in self._numbers.values() for tag, calls in tags.items()}
        self._numbers.clear()
        return taken

    def communicating(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self._log_only:
            self._stacks.setdefault(operation, set()).add(";".join(_stack()))
        elif self._before and self._is_chosen():
            self._read("pre", operation, arguments, keywords)

    def communicated(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not self._log_only and self._is_chosen():
            self._read("post", operation, arguments, keywords)

    def _is_chosen(self) -> bool:
        stack = ";".join(_stack()) if self._lines else ""
        return not self._lines or any(line.search(stack) for line in self._lines)

    def _read(self, side: str, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        tensors = [each for each in map(_tensor, (*arguments, *keywords.values())) if each is not None]
        for index, tensor in enumerate(tensors):
            tag = f"{operation}/rank{self._rank}/{side}_{index}"
            numbers = tensor_numbers(tensor, self._ops, self._eps)
            self._numbers.setdefault(operation, {}).setdefault(tag, []).append(numbers)

    def _together(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        together: dict[str, Any] = {}
        for op in self._ops:
            values = [call[op] for call in calls]
            if op in ("min", "max"):
                together[op] = (min if op == "min" else max)(values)
            elif op in _SUMMED:
                together[op] = sum(values) if op == "nans" else narrowed(sum(map(narrowed, values)))
            elif op in _AVERAGED:
                together[op] = narrowed(sum(map(narrowed, values)) / len(values))
            else:
                together[op] = math.nan
        return together


def _tensor(value: Any) -> torch.Tensor | None:
    """Of an argument: a tensor, or several as one."""
    if isinstance(value, torch.Tensor):
        return value
    if not isinstance(value, list) or not value:
        return None
    parts = [each.tensor if isinstance(each, dist.P2POp) else each for each in value]
    return torch.stack(parts) if all(isinstance(each, torch.Tensor) for each in parts) else None


def _stack() -> list[str]:
    """ "/path/train.py[57]   main", innermost first."""
    frames = reversed(traceback.extract_stack())
    return [f"{frame.filename}[{frame.lineno}]   {frame.name}" for frame in frames if "msprobe" not in frame.filename]


__all__ = ["CommunicationNumbers"]

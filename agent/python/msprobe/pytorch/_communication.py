"""What a call of torch.distributed says of itself: its group, its number in the group, what it carries.

The server joins the calls of all ranks by these words (proto/msprobe/v1/record.proto, Structure.fields).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

_MESSAGES = frozenset(("send", "isend", "recv", "irecv"))

# The parameters of each operation, in order: its signature cannot be asked for while its code is swapped.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    name: tuple(parameters.split())
    for name, parameters in {
        "all_gather": "tensor_list tensor group async_op",
        "_all_gather_base": "output_tensor input_tensor group async_op",
        "all_gather_into_tensor": "output_tensor input_tensor group async_op",
        "all_gather_single": "output_tensor input_tensor group async_op",
        "all_reduce": "tensor op group async_op",
        "all_to_all": "output_tensor_list input_tensor_list group async_op",
        "all_to_all_single": "output input output_split_sizes input_split_sizes group async_op",
        "barrier": "group async_op device_ids",
        "batch_isend_irecv": "p2p_op_list",
        "broadcast": "tensor src group async_op group_src",
        "gather": "tensor gather_list dst group async_op group_dst",
        "irecv": "tensor src group tag group_src",
        "isend": "tensor dst group tag group_dst",
        "recv": "tensor src group tag group_src",
        "reduce": "tensor dst op group async_op group_dst",
        "_reduce_scatter_base": "output input op group async_op",
        "reduce_scatter": "output input_list op group async_op",
        "reduce_scatter_single": "output input op group async_op",
        "reduce_scatter_tensor": "output input op group async_op",
        "scatter": "tensor scatter_list src group async_op group_src",
        "send": "tensor dst group tag group_dst",
    }.items()
}
OPERATIONS = tuple(_PARAMETERS)
_REDUCING = frozenset(name for name, parameters in _PARAMETERS.items() if "op" in parameters)
# The tensor that ranks must have alike: what one gives, or of a scattering one what it gets.
_ALIKE = ("tensor", "input_tensor", "output", "input")


class Communications:
    """Describes the calls of a process. Numbers begin at 0 in each step. Threads: those that hold the GIL."""

    def __init__(self) -> None:
        self._step = -1
        self._counts: dict[tuple[Any, ...], int] = {}
        self._groups: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()

    def describe(
        self, operation: str, arguments: Sequence[Any], keywords: dict[str, Any] | None, step: int
    ) -> dict[str, Any] | None:
        """The field "communication" of a call of torch.distributed.{operation}; None: this rank takes no part in it."""
        named = dict(zip(_PARAMETERS.get(operation, ()), arguments)) | (keywords or {})
        if step != self._step:
            self._step = step
            self._counts.clear()
        began = time.time_ns() // 1000
        if operation == "batch_isend_irecv":
            operations = named.get("p2p_op_list") or []
            if not operations or (words := self._group(operations[0].group)) is None:
                return None
            messages = [self._message(each.op.__name__, each.group, each.__dict__) for each in operations]
            return words | {"began": began, "async": True, "messages": messages}
        group = named.get("group")
        words = self._group(group)
        if words is None:
            return None
        described: dict[str, Any] = words | {"began": began}
        if operation in _MESSAGES:
            message = self._message(operation, group, named)
            return described | {"async": operation.startswith("i"), "messages": [message]}
        described |= {"async": bool(named.get("async_op")), "sequence": self._next(words["group"])}
        if operation in _REDUCING:
            described["reduce_op"] = str(named.get("op", "SUM")).rpartition(".")[2].strip(">").partition(":")[0]
        if (root := self._root(operation, named)) is not None:
            described["root"] = root
        return described | _content(named, (each for key, each in named.items() if key != "group"))

    def _next(self, *channel: Any) -> int:
        number = self._counts.get(channel, 0)
        self._counts[channel] = number + 1
        return number

    def _group(self, group: Any) -> dict[str, str] | None:
        group = _default_or(group)
        if not isinstance(group, dist.ProcessGroup):
            return None
        if (known := self._groups.get(group)) is None:
            described = getattr(group, "group_desc", "")
            name = group.group_name if described in ("", "undefined") else f"{group.group_name} {described}"
            known = {"group": name, "ranks": in_ranges(dist.get_process_group_ranks(group))}
            self._groups[group] = known
        return known

    def _message(self, operation: str, group: Any, named: dict[str, Any]) -> dict[str, Any]:
        sends = operation.endswith("send")
        peer = named.get("peer")
        if peer is None:
            peer = named.get("dst" if sends else "src")
        in_group = named.get("group_peer" if "peer" in named else "group_dst" if sends else "group_src")
        if peer is None and in_group is not None:
            peer = dist.get_global_rank(_default_or(group), in_group)
        tag = int(named.get("tag") or 0)
        words = self._group(group) or {"group": ""}
        message: dict[str, Any] = {"sends": sends, "peer": -1 if peer is None else int(peer), "tag": tag}
        message["sequence"] = self._next(words["group"], sends, message["peer"], tag)
        return message | _content(named, [named.get("tensor")])

    @staticmethod
    def _root(operation: str, named: dict[str, Any]) -> int | None:
        side = "src" if operation in ("broadcast", "scatter") else "dst" if operation in ("gather", "reduce") else ""
        if not side:
            return None
        if (root := named.get(side)) is not None:
            return int(root)
        if (in_group := named.get(f"group_{side}")) is not None:
            return dist.get_global_rank(_default_or(named.get("group")), in_group)
        return 0


def in_ranges(ranks: Sequence[int]) -> str:
    """ "0-7" or "0-12:4,13" of ascending ranks: a group's ranks are mostly evenly apart."""
    parts: list[str] = []
    at = 0
    while at < len(ranks):
        end = at + 1
        apart = ranks[end] - ranks[at] if end < len(ranks) else 0
        while end < len(ranks) and ranks[end] - ranks[end - 1] == apart:
            end += 1
        if end - at < 3 and apart != 1:
            end = at + 1
        one, last = ranks[at], ranks[end - 1]
        parts.append(f"{one}" if one == last else f"{one}-{last}" if apart == 1 else f"{one}-{last}:{apart}")
        at = end
    return ",".join(parts)


def carried(
    operation: str, arguments: Sequence[Any], keywords: dict[str, Any]
) -> tuple[int, torch.Tensor | None, torch.Tensor | None]:
    """The bytes of a call, as its field "communication" has them; what it takes and gives, where that is one tensor."""
    named = dict(zip(_PARAMETERS.get(operation, ()), arguments)) | keywords
    if operation == "batch_isend_irecv":
        return sum(_bytes(each.tensor) for each in named.get("p2p_op_list") or []), None, None
    taken = next((named[key] for key in ("input_tensor", "input", "tensor") if _is_tensor(named.get(key))), None)
    given = next((named[key] for key in ("output_tensor", "output", "tensor") if _is_tensor(named.get(key))), None)
    if operation in ("recv", "irecv", "scatter"):
        taken = None
    if operation in ("send", "isend", "gather", "all_gather"):
        given = None
    return max((_bytes(each) for key, each in named.items() if key != "group"), default=0), taken, given


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _default_or(group: Any) -> Any:
    return dist.distributed_c10d._get_default_group() if group is None else group


def _content(named: dict[str, Any], values: Iterable[Any]) -> dict[str, Any]:
    """The larger of what the call gives and what it gets, and the tensor that other ranks should have alike."""
    described: dict[str, Any] = {"bytes": max((_bytes(each) for each in values), default=0)}
    alike = next((named[key] for key in _ALIKE if isinstance(named.get(key), torch.Tensor)), None)
    if alike is not None:
        described |= {"dtype": str(alike.dtype), "shape": list(alike.shape)}
    return described


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(_bytes(each) for each in value)
    return 0


__all__ = ["OPERATIONS", "Communications", "carried", "in_ranges"]

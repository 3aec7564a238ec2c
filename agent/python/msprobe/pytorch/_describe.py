"""Encodings of the rare values that a call can carry; everything common is encoded in C++."""

import json
import zlib
from typing import Any

import torch
import torch.distributed as dist


def _group_id(ranks: list[int]) -> str:
    return f"{zlib.crc32(str(ranks).encode()):08x}"


def _process_group(group: Any) -> dict[str, Any]:
    ranks = dist.get_process_group_ranks(group)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": _group_id(ranks)}


def _placement(placement: Any) -> dict[str, Any]:
    if placement.is_shard():
        return {"Shard": {"dim": placement.dim}}
    if placement.is_partial():
        return {"Partial": {"reduce_op": str(placement.reduce_op)}}
    return {"Replicate": {}}


def describe(value: Any) -> "str | dict[str, Any] | tuple[torch.Tensor, str] | None":
    """JSON, a dict of JSON and tensors, or a DTensor's local tensor and the JSON of its layout; None: no encoding."""
    if not dist.is_available():
        return None
    if isinstance(value, torch.Tensor):
        tensor_module = __import__("sys").modules.get("torch.distributed.tensor")
        if tensor_module is None or not isinstance(value, tensor_module.DTensor):
            return None
        layout = {
            "device_mesh": value.device_mesh.mesh.tolist(),
            "placements": [_placement(each) for each in value.placements],
        }
        return value._local_tensor, json.dumps(layout)
    if isinstance(value, dist.ProcessGroup):
        return json.dumps(_process_group(value))
    if isinstance(value, dist.ReduceOp):
        return json.dumps({"type": "torch.distributed.ReduceOp", "value": str(value)})
    if isinstance(value, dist.P2POp):
        group = value.group or dist.distributed_c10d._get_default_group()
        return {
            "class_type": json.dumps("torch.distributed.P2POp"),
            "tensor": value.tensor,
            "op": json.dumps(value.op.__name__),
            "peer": json.dumps(value.peer),
            "tag": json.dumps(value.tag),
            "group_id": json.dumps(_group_id(dist.get_process_group_ranks(group))),
        }
    return None

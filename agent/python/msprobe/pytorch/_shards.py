"""Which part of a sharded tensor a rank has, as the names of its series say it."""

from __future__ import annotations

import functools
from typing import Any, cast

import torch


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor; another tensor as it is."""
    return getattr(tensor, "_local_tensor", tensor)


def shard_of(tensor: torch.Tensor) -> str:
    """ ".shard(512/1024@0-3)": elements of this rank, of the whole, and the ranks that have it together.

    The server makes the whole of these (server/format/series/shard_name.h). Empty: the rank has the whole, or what it
    has is to be added to what others have.
    """
    own, sharded = local(tensor), cast(Any, tensor)
    if own is tensor:
        return ""
    return _shard(sharded.device_mesh, sharded.placements, own.shape.numel(), tensor.shape.numel())


@functools.lru_cache(maxsize=4096)
def _shard(mesh: Any, placements: tuple[Any, ...], elements: int, whole: int) -> str:
    coordinate = mesh.get_coordinate()
    if coordinate is None or any(each.is_partial() for each in placements):
        return ""
    # Along dimensions of the mesh that replicate, each rank belongs to a group of its own.
    index = tuple(at if each.is_replicate() else slice(None) for each, at in zip(placements, coordinate))
    ranks = sorted(mesh.mesh[index].flatten().tolist())
    return f".shard({elements}/{whole}@{_ranges(ranks)})" if len(ranks) > 1 else ""


def _ranges(ranks: list[int]) -> str:
    """ "0-3", "0-6+2", or with commas between: of ranks in order."""
    stride = ranks[1] - ranks[0]
    if ranks == list(range(ranks[0], ranks[-1] + 1, stride)):
        return f"{ranks[0]}-{ranks[-1]}" + (f"+{stride}" if stride > 1 else "")
    return ",".join(map(str, ranks))


__all__ = ["local", "shard_of"]

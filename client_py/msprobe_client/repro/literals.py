"""Arguments as Python source. What a dump holds never becomes code: each text here is a literal of a known type."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from msprobe_client.check.arguments import NotReplayable

_DEVICE = re.compile(r"(cpu|cuda|npu|xpu|mps)(:\d+)?")
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


def of_this_machine(value: Any) -> Any:
    """Names of devices become torch.device("cpu"), which a script replaces by its argument."""
    if isinstance(value, str) and _DEVICE.fullmatch(value):
        return torch.device("cpu")
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(of_this_machine(item) for item in value)
    if isinstance(value, dict):
        return {key: of_this_machine(item) for key, item in value.items()}
    return value


def source_of(value: Any, names: Mapping[int, str]) -> str:
    """names: of tensors by id; a tensor is t["name"], a device the variable `device`."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return f't["{names[id(value)]}"]'
    if value is None or value is ... or kind is bool or kind is int:
        return "..." if value is ... else repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f'float("{value!r}")'
    if kind is str:
        return ascii(value)
    if kind is complex:
        return f"complex({source_of(value.real, names)}, {source_of(value.imag, names)})"
    if kind is torch.device:
        return "device"
    if kind is torch.dtype or value in _MEMORY_FORMATS:
        return str(value)
    if kind is slice:
        return f"slice({', '.join(source_of(end, names) for end in (value.start, value.stop, value.step))})"
    if kind is torch.Size:
        return f"torch.Size([{', '.join(str(int(size)) for size in value)}])"
    if kind is list:
        return f"[{', '.join(source_of(item, names) for item in value)}]"
    if kind is tuple:
        return f"({''.join(source_of(item, names) + ', ' for item in value)})"
    if kind is dict and all(type(key) is str for key in value):
        return "{" + ", ".join(f"{key!a}: {source_of(item, names)}" for key, item in value.items()) + "}"
    raise NotReplayable(f"an argument is a {kind.__name__}, which a script cannot state")


def keyword_of(name: str) -> str:
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise NotReplayable(f"{name!r} is no name of an argument")
    return name

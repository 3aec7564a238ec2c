"""Arguments and results of a module with other tensors in the same places."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def with_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """A value like this one, with `tensors` for those that require grad, in depth-first order.

    Lists, tuples and dicts, also of the user's own classes, are copied where something inside is replaced; all else
    stays the object it is.
    """
    return _replaced(value, iter(tensors))


def _replaced(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return next(tensors) if value.requires_grad else value
    if isinstance(value, dict):
        items = {key: _replaced(item, tensors) for key, item in value.items()}
        if all(items[key] is item for key, item in value.items()):
            return value
        made: Any = copy.copy(value)
        for key, item in items.items():
            made[key] = item
        return made
    if not isinstance(value, (list, tuple)):
        return value
    parts = [_replaced(item, tensors) for item in value]
    if all(new is old for new, old in zip(parts, value)):
        return value
    if isinstance(value, list):
        made = copy.copy(value)
        made[:] = parts
        return made
    return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)

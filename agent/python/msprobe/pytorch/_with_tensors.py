"""Arguments and results of calls with other tensors in the same places."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch


def with_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """A value like this one, with `tensors` for those that require grad, in depth-first order."""
    replacements = iter(tensors)
    return mapped(value, lambda tensor: next(replacements) if tensor.requires_grad else tensor)


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A value like this one, with change(tensor) for each of its tensors, in depth-first order.

    Lists, tuples and dicts, also of the user's own classes, are copied where something inside is replaced; all else
    stays the object it is.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        items = {key: mapped(item, change) for key, item in value.items()}
        if all(items[key] is item for key, item in value.items()):
            return value
        made: Any = copy.copy(value)
        for key, item in items.items():
            made[key] = item
        return made
    if not isinstance(value, (list, tuple)):
        return value
    parts = [mapped(item, change) for item in value]
    if all(new is old for new, old in zip(parts, value)):
        return value
    if isinstance(value, list):
        made = copy.copy(value)
        made[:] = parts
        return made
    return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in depth-first order."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    mapped(value, note)
    return found

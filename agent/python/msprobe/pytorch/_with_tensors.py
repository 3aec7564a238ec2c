"""Arguments and results of calls with other tensors in the same places."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe._common import nested


def with_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """A value like this one, with `tensors` for those that require grad, in depth-first order."""
    replacements = iter(tensors)
    return mapped(value, lambda tensor: next(replacements) if tensor.requires_grad else tensor)


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A value like this one, with change(tensor) for each of its tensors, as nested.mapped."""
    return nested.mapped(value, torch.Tensor, change)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in depth-first order."""
    return nested.instances(value, torch.Tensor)

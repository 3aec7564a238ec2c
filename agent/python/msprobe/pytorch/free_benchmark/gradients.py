"""Stage backward: a call's gradients, computed again on copies when those of its outputs have arrived."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import torch

from msprobe._common.swaps import read_names
from msprobe.pytorch._with_tensors import tensors_of
from msprobe.pytorch.free_benchmark.perturbing import CHANGES, PLACES, Change, copied, one_by_one
from msprobe.pytorch.free_benchmark.rerun import Arguments, NotRepeatable, autocast, unnoticed
from msprobe.pytorch.interception import functions_of

_NAMES = Path(__file__).parent.parent / "api_names.txt"

Gradients = Sequence[Optional[torch.Tensor]]


class Backward:
    """A call's arguments, copied before it runs, and held until its gradients have been compared once.

    NotRepeatable at construction: no gradient will come, or the function cannot be found again.
    """

    def __init__(self, api: str, arguments: Arguments, mode: str) -> None:
        self._needs = [each.requires_grad for each in arguments.tensors]
        if not torch.is_grad_enabled() or not any(self._needs):
            raise NotRepeatable("it gets no gradient")
        if api not in _functions():
            raise NotRepeatable("its function is not known by its name")
        arguments.refuse_unrepeatable()
        self._function, self._mode = _functions()[api], mode
        self._autocasts = arguments.autocasts()
        with unnoticed():
            self._arguments: Arguments | None = arguments.mapped(copied)
        self._changes_arguments = False

    def follow(self, arguments: Arguments, result: Any, arrived: Callable[[Gradients], None]) -> None:
        """The call has given `result`: arrived(gradients) is called when those of its tensors are there."""
        outputs = [each for each in tensors_of(result) if each.requires_grad]
        if not outputs:
            return
        self._changes_arguments = any(each is one for each in outputs for one in arguments.tensors)
        torch.autograd.graph.register_multi_grad_hook(outputs, arrived)

    def gradients(self, arrived: Gradients) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]:
        """The gradients of the arguments that have some: as they are, and for each second run. The first time."""
        arguments, self._arguments = self._arguments, None
        if arguments is None:  # of a graph that is kept, a second time
            return [], []
        with torch.enable_grad(), unnoticed(arguments.devices):
            with autocast(self._autocasts, True):
                given = self._perturbed(arguments, arrived)
            if self._mode in PLACES:
                place = PLACES[self._mode]
                with autocast(self._autocasts, self._mode == "no_change"):
                    given += self._of(arguments.mapped(place), [_mapped(arrived, place)])
        there = [index for index, each in enumerate(given[0]) if each is not None]
        return _chosen(given[0], there), [_chosen(each, there) for each in given[1:]]

    def _perturbed(self, arguments: Arguments, arrived: Gradients) -> list[Gradients]:
        """As they are; then, of a mode that changes numbers, with each incoming gradient and each argument changed."""
        if self._mode not in CHANGES:
            return self._of(arguments, [arrived])
        given = self._of(arguments, [arrived, *(_mapped(arrived, each) for each in one_by_one(self._mode, arrived))])
        for change in one_by_one(self._mode, arguments.tensors):
            given += self._of(arguments.mapped(change), [arrived])
        return given

    def _of(self, arguments: Arguments, incoming: Sequence[Gradients]) -> list[Gradients]:
        """The call on these arguments, and the gradients of those that need some, for each set that comes in."""
        needs = {id(each): need for each, need in zip(arguments.tensors, self._needs)}
        leaves: list[torch.Tensor] = []

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            if not needs[id(tensor)]:
                return tensor
            leaves.append(tensor.detach().requires_grad_())
            return leaves[-1].clone() if self._changes_arguments else leaves[-1]

        outputs = [each for each in tensors_of(arguments.mapped(leaf).call(self._function)) if each.requires_grad]
        if len(outputs) != len(incoming[0]):
            raise NotRepeatable("its second run has other outputs")
        found: list[Gradients] = []
        for gradients in incoming:
            pairs = [(out, each.detach()) for out, each in zip(outputs, gradients) if each is not None]
            ends, seeds = [out for out, _ in pairs], [seed.to(out.device, out.dtype) for out, seed in pairs]
            found.append(torch.autograd.grad(ends, leaves, seeds, retain_graph=True, allow_unused=True))
        return found


def _mapped(gradients: Gradients, change: Change) -> Gradients:
    return [None if each is None else change(each) for each in gradients]


def _chosen(gradients: Gradients, there: list[int]) -> list[torch.Tensor]:
    return [each for each in (gradients[index] for index in there) if each is not None]


@functools.cache
def _functions() -> dict[str, Any]:
    """API -> the function that has its name."""
    listed = functions_of(read_names(_NAMES.read_text(encoding="utf-8")))
    return {f"{prefix}.{name.rpartition('.')[2]}": function for prefix, _, name, function in listed}


__all__ = ["Backward"]

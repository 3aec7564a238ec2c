"""Stage backward: a call's gradients, computed again on copies when those of its results have arrived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor

from msprobe._common.free_benchmark.stage import Gradients
from msprobe.mindspore._gradients import Passage, are_recorded, has_gradient
from msprobe.mindspore.free_benchmark.perturbing import PLACES, copied, has_digits, one_by_one, rounded
from msprobe.mindspore.free_benchmark.rerun import Arguments, NotRepeatable, computed, unnoticed

Told = Callable[[Gradients], None]


class Backward:
    """A call's arguments, copied before it runs, and held until its gradients have been compared once.

    NotRepeatable at construction: no gradient will come.
    """

    def __init__(self, arguments: Arguments, function: Callable[..., Any], mode: str) -> None:
        self._needs = [has_gradient(each) for each in arguments.tensors]
        if not are_recorded() or not any(self._needs):
            raise NotRepeatable("it gets no gradient")
        arguments.refuse_unrepeatable()
        self._function, self._mode = function, mode
        self._arguments: Arguments | None = arguments.mapped(copied)

    def gradients(self, arrived: Gradients) -> tuple[list[Any], list[list[Any]]]:
        """The gradients of the arguments that have some: as they are, and for each second run. The first time."""
        arguments, self._arguments = self._arguments, None
        if arguments is None:  # another pass over the same call
            return [], []
        with unnoticed():  # what fails, fails outside a graph
            results = _results(computed(lambda: arguments.mapped(copied).call(self._function)))
        if len(results) != len(arrived):
            raise NotRepeatable("its second run has other results")
        pairs = [(each, gradient) for each, gradient in zip(results, arrived) if has_digits(each)]
        arrived = [None if gradient is None else copied(gradient) for _, gradient in pairs]
        first = self._of(arguments, arrived)
        if self._mode in PLACES:
            place = PLACES[self._mode]
            return first, [self._of(arguments.mapped(place), arrived)]
        others = []
        for change in one_by_one(self._mode, arrived):
            others.append(self._of(arguments, [None if each is None else change(each) for each in arrived]))
        for change in one_by_one(self._mode, arguments.tensors):
            others.append(self._of(arguments.mapped(change), arrived))
        return first, others

    def _of(self, arguments: Arguments, incoming: Gradients) -> list[Any]:
        """The gradients of the arguments that need some, on these arguments, for these gradients of the results."""
        leaves = [each for each, needs in zip(arguments.tensors, self._needs) if needs]

        def outputs(*given: Tensor) -> tuple[Tensor, ...]:
            placed = {id(leaf): each for leaf, each in zip(leaves, given)}
            result = arguments.mapped(lambda tensor: placed.get(id(tensor), tensor)).call(self._function)
            return tuple(each for each in _results(result) if has_digits(each))

        def differentiated() -> Any:
            shown, pullback = mindspore.vjp(outputs, *leaves)
            shown = shown if isinstance(shown, tuple) else (shown,)
            return pullback(tuple(_seed(each, like) for each, like in zip(incoming, shown)))

        given = computed(differentiated)
        return list(given) if isinstance(given, (tuple, list)) else [given]


def _results(value: Any) -> list[Tensor]:
    """The tensors of a call's result whose gradients are told, as a Passage counts them."""
    return [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, Tensor)]


def _seed(gradient: Any, like: Tensor) -> Tensor:
    """The gradient of a result, which has this one's dtype in the second run; zeros where none has come."""
    if gradient is None:
        return Tensor(np.zeros_like(like.asnumpy()))
    return rounded(gradient, like)


class Arrivals:
    """The gradients of a call's results, told together once those that come have come. It stands where a Passage has
    the call that it records."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.passage = Passage(self, False, {})

    def read_gradient(self, gradient: Tensor) -> Tensor:
        return gradient

    def begin_backward(self, gradients: Sequence[Any]) -> None:
        self._told(gradients)

    def end_backward(self, gradients: Sequence[Any]) -> None:
        pass


__all__ = ["Arrivals", "Backward"]

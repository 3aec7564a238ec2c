"""Task free_benchmark for MindSpore: how its calls run again."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops

from msprobe import _mindspore
from msprobe._common.free_benchmark import stage
from msprobe._common.free_benchmark.judging import Distance
from msprobe._common.free_benchmark.rows import COLUMNS
from msprobe._common.free_benchmark.stage import Call, Change, Gradients
from msprobe._common.nested import instances, mapped
from msprobe.mindspore._calls import StagedCall
from msprobe.mindspore._gradients import are_recorded
from msprobe.mindspore.free_benchmark.gradients import Arrivals, Backward
from msprobe.mindspore.free_benchmark.judging import distance
from msprobe.mindspore.free_benchmark.perturbing import (
    PLACES,
    dtype_of,
    has_digits,
    is_narrow,
    one_by_one,
    rounded,
)
from msprobe.mindspore.free_benchmark.rerun import Arguments, NotRepeatable, computed, draws, unnoticed, wait

_REPEATED = ("Functional", "Mint", "MintFunctional", "Primitive", "Tensor")  # of what others hold inside, nobody knows
_UNDEFINED = ("empty", "empty_like")  # of whatever was there


class FreeBenchmark(stage.FreeBenchmark):
    """A call is a StagedCall. With `fix` the program gets other tensors, whose gradients go to the first result's."""

    columns = tuple("pert_type" if name == "pert_mode" else name for name in COLUMNS)
    places = PLACES

    def __call__(self, call: StagedCall) -> Any:
        wait()
        return super().__call__(call)

    def _leaves_out(self, call: StagedCall) -> bool:
        prefix, *names, _, _ = call.name.split(".")
        return prefix not in _REPEATED or names[-1] in _UNDEFINED or any(map(draws, names))

    def _program(self, call: StagedCall) -> Any:
        return _done(call, call.passing)

    def _arguments(self, call: StagedCall) -> Arguments:
        return Arguments(call.args, call.kwargs)

    def _tensors_of(self, value: Any) -> list[Tensor]:
        return instances(value, Tensor)

    def _has_digits(self, tensor: Tensor) -> bool:
        return has_digits(tensor)

    def _dtype(self, tensor: Tensor) -> str:
        return dtype_of(tensor)

    def _can_improve(self, arguments: Arguments) -> bool:
        return any(map(is_narrow, arguments.tensors))

    def _one_by_one(self, tensors: Iterable[Tensor]) -> list[Change]:
        return one_by_one(self._mode, tensors)

    def _second(self, call: StagedCall, arguments: Arguments, change: Change, keeps_autocast: bool) -> Any:
        with unnoticed():
            return computed(lambda: arguments.mapped(change).call(call))

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        yield  # numbers are compared in numpy

    def _unrecorded(self, action: Callable[[], Any]) -> Any:
        return _mindspore.unrecorded(action)

    def _distance(self, first: Tensor, second: Tensor, least: float) -> Distance:
        return distance(first.asnumpy(), second.asnumpy(), least)

    def _replaced(self, result: Any, better: Any, arguments: Arguments) -> Any:
        others = iter(instances(better, Tensor))
        return mapped(result, Tensor, lambda tensor: _given(tensor, next(others), arguments))

    def _keep(self, known: Call, arguments: Arguments, call: StagedCall) -> Backward:
        if call.changes_arguments:
            raise NotRepeatable("it changes its argument, whose gradient is another then")
        return Backward(arguments, call.function, self._mode)

    def _followed(self, known: Call, call: StagedCall, arguments: Arguments, kept: Backward) -> Any:
        passage = Arrivals(functools.partial(self._judge_gradients, known, kept)).passage
        args = self._contained(known, lambda: passage.enter(call.passing))
        result = _done(call, call.passing if args is None else args)
        left = self._contained(known, lambda: passage.leave(result))
        return result if left is None else left

    def _judge_gradients(self, call: Call, kept: Backward, arrived: Gradients) -> None:
        try:
            wait()
        except Exception as error:  # of the program's backward pass
            _mindspore.keep_program_error(error)
            return
        super()._judge_gradients(call, kept, arrived)

    def _gradients(self, kept: Backward, arrived: Gradients) -> tuple[list[Any], list[list[Any]]]:
        return kept.gradients(arrived)

    def _name(self, call: Call, stage: str) -> str:
        return call.api + "." + call.name.rsplit(".", 2)[1]


def _done(call: StagedCall, args: Sequence[Any]) -> Any:
    """What the program's call gives, once it is there. What its operators raise is raised here, for the program."""
    result = call(*args, **call.kwargs)
    wait()
    return result


class _Given(nn.Cell):
    """A tensor in place of another, whose gradient is the other's."""

    def construct(self, instead_of: Tensor, given: Tensor) -> Tensor:
        return given

    def bprop(self, instead_of: Tensor, given: Tensor, out: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, _mindspore.unrecorded(lambda: ops.zeros_like(given))


def _given(output: Tensor, better: Tensor, arguments: Arguments) -> Tensor:
    """What the program gets for one tensor of the result."""
    if not has_digits(output) or any(output is each for each in arguments.tensors):
        return output
    if output.shape != better.shape:
        raise NotRepeatable("its second result has another shape")
    better = rounded(better, output)
    if np.array_equal(better.asnumpy(), output.asnumpy()):
        return output
    return _Given()(output, better) if are_recorded() else better


__all__ = ["FreeBenchmark"]

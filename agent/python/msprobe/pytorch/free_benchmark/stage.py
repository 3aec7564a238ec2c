"""Task free_benchmark for PyTorch: how its calls run again."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from msprobe import _agent
from msprobe._common.free_benchmark import stage
from msprobe._common.free_benchmark.judging import Distance
from msprobe._common.free_benchmark.stage import Call, Change, Gradients
from msprobe.pytorch._with_tensors import tensors_of
from msprobe.pytorch.free_benchmark.gradients import Backward
from msprobe.pytorch.free_benchmark.judging import distance, error_against
from msprobe.pytorch.free_benchmark.perturbing import PLACES, is_narrow, on_cpu, one_by_one
from msprobe.pytorch.free_benchmark.rerun import Arguments, NotRepeatable, autocast, unnoticed

_UNDEFINED = ("empty", "empty_like", "new_empty", "empty_strided", "resize_", "resize_as_")  # of whatever was there


class FreeBenchmark(stage.FreeBenchmark):
    """A call is a StagedCall of the interceptor chain. With `fix` the result's tensors get other numbers, and keep
    their place in autograd's graph."""

    places = PLACES
    on_cpu = staticmethod(on_cpu)

    def __init__(self, config: Any, rank: Callable[[], int | None]) -> None:
        super().__init__(config, rank)
        # Inside the backward pass, where calls would be recorded.
        self._suppressed = _agent.intercept(lambda action: action(), "suppress")

    def _leaves_out(self, call: Any) -> bool:
        api = call.name.rsplit(".", 2)[0]
        return api.startswith("Distributed.") or api.rpartition(".")[2] in _UNDEFINED

    def _arguments(self, call: Any) -> Arguments:
        return Arguments(call.args, call.kwargs)

    def _tensors_of(self, value: Any) -> list[torch.Tensor]:
        return tensors_of(value)

    def _has_digits(self, tensor: torch.Tensor) -> bool:
        return _has_digits(tensor)

    def _dtype(self, tensor: torch.Tensor) -> str:
        return str(tensor.dtype).removeprefix("torch.")

    def _can_improve(self, arguments: Arguments) -> bool:
        return bool(arguments.autocasts()) or any(map(is_narrow, arguments.tensors))

    def _one_by_one(self, tensors: Iterable[torch.Tensor]) -> list[Change]:
        return [*one_by_one(self._mode, tensors)]

    def _second(self, call: Any, arguments: Arguments, change: Change, keeps_autocast: bool) -> Any:
        with torch.no_grad(), autocast(arguments.autocasts(), keeps_autocast), unnoticed(arguments.devices):
            return arguments.mapped(change).call(call)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        with torch.no_grad(), unnoticed():
            yield

    def _unrecorded(self, action: Callable[[], Any]) -> Any:
        return self._suppressed(action)

    def _distance(self, first: torch.Tensor, second: torch.Tensor, least: float) -> Distance:
        return distance(first, second, least)

    def _error_against(self, result: torch.Tensor, golden: torch.Tensor) -> tuple[float, bool]:
        return error_against(result, golden)

    def _replaced(self, result: Any, better: Any, arguments: Arguments) -> Any:
        with self._aside():
            for output, other in zip(tensors_of(result), tensors_of(better)):
                _replace(output, other, arguments)
        return result

    def _keep(self, known: Call, arguments: Arguments, call: Any) -> Backward:
        return Backward(known.api, arguments, self._mode)

    def _followed(self, known: Call, call: Any, arguments: Arguments, kept: Backward) -> Any:
        result = call(*call.args, **call.kwargs)
        judge = functools.partial(self._judge_gradients, known, kept)
        self._contained(known, lambda: kept.follow(arguments, result, judge))
        return result

    def _gradients(self, kept: Backward, arrived: Gradients) -> tuple[list[Any], list[list[Any]]]:
        first, others = kept.gradients(arrived)
        return [*first], [[*each] for each in others]


def _has_digits(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _replace(output: torch.Tensor, better: torch.Tensor, arguments: Arguments) -> None:
    """Gives a result's tensor other numbers. A view of an argument has that one's, and keeps them."""
    if not _has_digits(output):
        return
    if not any(output is each for each in arguments.tensors):
        storage = output.untyped_storage().data_ptr()
        if any(storage == each.untyped_storage().data_ptr() for each in arguments.tensors):
            return
    if output.shape != better.shape:
        raise NotRepeatable("its second result has another shape")
    output.data.copy_(better)  # autograd, which may have kept it, is not told


__all__ = ["FreeBenchmark"]

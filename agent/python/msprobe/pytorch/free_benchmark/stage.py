"""The stage of the chain that calls pass through: runs a call a second time, and judges or replaces its result."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.native import extension
from msprobe.pytorch._with_tensors import tensors_of
from msprobe.pytorch.free_benchmark.gradients import Backward
from msprobe.pytorch.free_benchmark.judging import Distance, distance, error_against, least_of, limit_of
from msprobe.pytorch.free_benchmark.perturbing import PLACES, Change, is_narrow, on_cpu, one_by_one
from msprobe.pytorch.free_benchmark.preheat import Preheat
from msprobe.pytorch.free_benchmark.rerun import Arguments, NotRepeatable, autocast, unnoticed
from msprobe.pytorch.free_benchmark.rows import Rows

_UNDEFINED = ("empty", "empty_like", "new_empty", "empty_strided", "resize_", "resize_as_")  # of whatever was there


@dataclass
class _Call:
    """What is known of a call beside its tensors."""

    name: str  # "Torch.log.0.forward"
    step: int
    is_sampled: bool = False  # by the preheat: it runs on the CPU as well

    @property
    def api(self) -> str:
        return self.name.rsplit(".", 2)[0]


class FreeBenchmark:
    """stage(call) -> result. Made of a configuration of task free_benchmark.

    The second run comes first, on copies, so that a call which changes its arguments finds them as they were. Without
    `fix` the program gets what it would have got; with it, the result's tensors get other numbers, and keep their place
    in autograd's graph. Nothing here raises into a call. Threads: any.

    rank(): of this process, where it is known.
    """

    def __init__(self, config: Any, rank: Callable[[], int | None]) -> None:
        self._mode: str = config.pert_mode
        self._fixes = config.handler_type == "fix"
        self._backward = config.fuzz_stage == "backward"
        self._rank = rank
        self._rows = Rows(Path(config.dump_path) / "free_benchmark.csv")
        self._preheat = Preheat(config.preheat_step, config.max_sample) if config.if_preheat else None
        self._told: set[str] = set()  # APIs
        self._lock = threading.Lock()
        # Inside the backward pass, where calls would be recorded.
        self._unrecorded = extension.intercept(lambda action: action(), "suppress")
        effect = "the program gets the second result" if self._fixes else f"what differs stands in {self._rows.path}"
        log.info(f"free_benchmark: each selected call runs a second time, with {self._mode}; {effect}")

    def __call__(self, call: Any) -> Any:
        known = _Call(call.name, call.step)
        if known.api.startswith("Distributed.") or known.api.rpartition(".")[2] in _UNDEFINED:
            return call(*call.args, **call.kwargs)
        arguments = self._contained(known, lambda: Arguments(call.args, call.kwargs))
        if arguments is None:
            return call(*call.args, **call.kwargs)
        if self._backward:
            kept = self._contained(known, lambda: Backward(known.api, arguments, self._mode))
            result = call(*call.args, **call.kwargs)
            if kept is not None:
                judge = functools.partial(self._judge_gradients, known, kept)
                self._contained(known, lambda: kept.follow(arguments, result, judge))
            return result
        seconds = self._contained(known, lambda: self._run_again(known, arguments, call))
        result = call(*call.args, **call.kwargs)
        if seconds:
            with torch.no_grad(), unnoticed():
                self._contained(known, lambda: self._judge_outputs(known, arguments, result, seconds))
        return result

    def _contained(self, call: _Call, action: Callable[[], Any]) -> Any:
        """What it gives; None where it fails. Of each API one failure is told."""
        try:
            return action()
        except NotRepeatable as error:
            log.debug(f"free_benchmark: {call.name} is left out: {error}")
        except Exception as error:  # whatever it is, the program did not ask for it
            with self._lock:
                is_new = call.api not in self._told
                self._told.add(call.api)
            if is_new:
                log.warning(f"free_benchmark: {call.name} was not compared: {type(error).__name__}: {error}")
        return None

    # Forward.

    def _run_again(self, known: _Call, arguments: Arguments, call: Any) -> list[Any]:
        """The results of the second runs, on copies; the last on the CPU, if the preheat wants it."""
        if not any(map(_has_digits, arguments.tensors)):
            return []
        known.is_sampled = self._preheat is not None and self._preheat.begin(known.api, known.step)
        if self._preheat is not None and self._preheat.counting:
            return []
        arguments.refuse_unrepeatable()
        autocasts = arguments.autocasts()
        keeps = self._mode not in ("improve_precision", "to_cpu")  # autocast would undo these
        runs = []
        for change in self._changes(arguments, bool(autocasts)):
            with torch.no_grad(), autocast(autocasts, keeps), unnoticed(arguments.devices):
                runs.append(arguments.mapped(change).call(call))
        if known.is_sampled:
            with torch.no_grad(), autocast(autocasts, False), unnoticed(arguments.devices):
                runs.append(arguments.mapped(on_cpu).call(call))
        return runs

    def _changes(self, arguments: Arguments, is_autocast: bool) -> list[Change]:
        """What becomes of each tensor, for each second run: a mode that changes inputs has one for each of them."""
        if self._mode in PLACES:
            is_any_narrow = is_autocast or any(map(is_narrow, arguments.tensors))
            return [PLACES[self._mode]] if is_any_narrow or self._mode != "improve_precision" else []
        return one_by_one(self._mode, arguments.tensors)

    def _judge_outputs(self, call: _Call, arguments: Arguments, result: Any, seconds: list[Any]) -> None:
        golden = tensors_of(seconds.pop()) if call.is_sampled else None
        outputs, others = tensors_of(result), [tensors_of(second) for second in seconds]
        if self._fixes:
            for output, better in zip(outputs, others[0]):
                _replace(output, better, arguments)
            return
        self._judge(call, outputs, others, golden, is_one=isinstance(result, torch.Tensor))

    # Backward.

    def _judge_gradients(self, call: _Call, kept: Backward, arrived: Sequence[torch.Tensor | None]) -> None:
        """The gradients of a call's outputs have arrived."""

        def judge() -> None:
            first, others = kept.gradients(arrived)
            with torch.no_grad(), unnoticed():
                self._judge(call, first, others, is_one=len(first) == 1)

        self._unrecorded(lambda: self._contained(call, judge))

    # Both.

    def _judge(
        self,
        call: _Call,
        results: list[torch.Tensor],
        others: list[list[torch.Tensor]],
        golden: list[torch.Tensor] | None = None,
        *,
        is_one: bool,
    ) -> None:
        """Writes a row for each result from which one of the others is too far: for the farthest."""
        for index, result in enumerate(results):
            if not others or not _has_digits(result):
                continue
            place = "" if is_one else index
            if self._mode == "to_cpu" and self._preheat is None:
                error, is_wrong = max((error_against(result, other[index]) for other in others), key=_worse)
                if is_wrong:
                    self._write(call, result, place, error)
                continue
            found = max((self._distance(result, other[index]) for other in others), key=_farther)
            least = limit_of(result.dtype, self._mode)
            if found.exceeds(least if self._preheat is None else self._preheat.limit(call.api, result.dtype)):
                self._write(call, result, place, found.max_rel)
            if golden is not None and self._preheat is not None:
                agrees = not error_against(result, golden[index])[1]
                self._preheat.note(call.api, result.dtype, found.ratio, agrees, least)

    def _distance(self, result: torch.Tensor, other: torch.Tensor) -> Distance:
        return distance(result, other, least_of(other.dtype, self._mode, self._backward))

    def _write(self, call: _Call, result: torch.Tensor, index: int | str, max_rel: float | str) -> None:
        rank, stage = self._rank(), "backward" if self._backward else "forward"
        self._rows.write(
            {
                "rank": "" if rank is None else rank,
                "pert_mode": self._mode,
                "stage": stage,
                "step": call.step,
                "api_name": call.name.removesuffix("forward") + stage,
                "max_rel": max_rel,
                "dtype": result.dtype,
                "shape": result.shape,
                "output_index": index,
            }
        )


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


def _farther(found: Distance) -> tuple[bool, float]:
    return found.flips, math.inf if math.isnan(found.ratio) else found.ratio


def _worse(found: tuple[float, bool]) -> tuple[bool, float]:
    return found[1], math.inf if math.isnan(found[0]) else found[0]


__all__ = ["FreeBenchmark"]

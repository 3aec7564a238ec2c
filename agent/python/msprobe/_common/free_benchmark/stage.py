"""What calls pass through: runs a call a second time, and judges or replaces its result."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.free_benchmark.judging import Distance, least_of, limit_of
from msprobe._common.free_benchmark.preheat import Preheat
from msprobe._common.free_benchmark.rerun import Arguments, NotRepeatable
from msprobe._common.free_benchmark.rows import COLUMNS, Rows

Change = Callable[[Any], Any]  # of a tensor into another
Gradients = Sequence[Any]  # one a tensor, or None


@dataclass
class Call:
    """What is known of a call beside its tensors."""

    name: str  # "Torch.log.0.forward"
    step: int
    is_sampled: bool = False  # by the preheat: it runs on the CPU as well

    @property
    def api(self) -> str:
        return self.name.rsplit(".", 2)[0]


class FreeBenchmark:
    """stage(call) -> result. Made of a configuration of task free_benchmark. A framework's class gives the methods of
    the first section below.

    The second run comes first, on copies, so that a call which changes its arguments finds them as they were. Without
    `fix` the program gets what it would have got. Nothing here raises into a call. Threads: any.

    rank(): of this process, where it is known.
    """

    columns: Sequence[str] = COLUMNS  # of the csv, as the framework's users know them
    places: Mapping[str, Change]  # modes that run a call elsewhere, and the copy that each makes of a tensor
    on_cpu: Change  # for samples of the preheat, where the framework has it

    def __init__(self, config: Any, rank: Callable[[], int | None]) -> None:
        self._mode: str = config.pert_mode
        self._fixes = config.handler_type == "fix"
        self._backward = config.fuzz_stage == "backward"
        self._rank = rank
        self._rows = Rows(Path(config.dump_path) / "free_benchmark.csv", self.columns)
        self._preheat = Preheat(config.preheat_step, config.max_sample) if config.if_preheat else None
        self._told: set[str] = set()  # APIs
        self._lock = threading.Lock()
        effect = "the program gets the second result" if self._fixes else f"what differs stands in {self._rows.path}"
        log.info(f"free_benchmark: each selected call runs a second time, with {self._mode}; {effect}")

    # What a framework gives.

    def _leaves_out(self, call: Any) -> bool:
        """A call that is none to repeat, by its name."""
        raise NotImplementedError

    def _program(self, call: Any) -> Any:
        """Runs the call as the program has asked for it."""
        return call(*call.args, **call.kwargs)

    def _arguments(self, call: Any) -> Arguments:
        raise NotImplementedError

    def _tensors_of(self, value: Any) -> list[Any]:
        raise NotImplementedError

    def _has_digits(self, tensor: Any) -> bool:
        """Floating-point or complex."""
        raise NotImplementedError

    def _dtype(self, tensor: Any) -> str:
        """ "float32"."""
        raise NotImplementedError

    def _can_improve(self, arguments: Any) -> bool:
        """Something in the call has 16 bits."""
        raise NotImplementedError

    def _one_by_one(self, tensors: Iterable[Any]) -> list[Change]:
        """For each tensor that the mode can change, what changes it and copies the others."""
        raise NotImplementedError

    def _second(self, call: Any, arguments: Any, change: Change, keeps_autocast: bool) -> Any:
        """The call's result with change(tensor) for each tensor. The program does not notice."""
        raise NotImplementedError

    def _aside(self) -> AbstractContextManager[None]:
        """The program does not notice what runs inside."""
        raise NotImplementedError

    def _unrecorded(self, action: Callable[[], Any]) -> Any:
        """Runs it, outside any call: nothing that it does is a record."""
        raise NotImplementedError

    def _distance(self, first: Any, second: Any, least: float) -> Distance:
        raise NotImplementedError

    def _error_against(self, result: Any, golden: Any) -> tuple[float, bool]:
        """Of a result against the CPU's, and whether that is too much."""
        raise NotImplementedError

    def _replaced(self, result: Any, better: Any, arguments: Any) -> Any:
        """What the program gets: `result` with the numbers of `better`, and its place in the graph of gradients."""
        raise NotImplementedError

    def _keep(self, known: Call, arguments: Any, call: Any) -> Any:
        """A call, before it runs, whose gradients will come, for the two methods below. NotRepeatable: none will."""
        raise NotImplementedError

    def _followed(self, known: Call, call: Any, arguments: Any, kept: Any) -> Any:
        """Runs the call; when the gradients of its result have arrived, _judge_gradients(known, kept, them)."""
        raise NotImplementedError

    def _gradients(self, kept: Any, arrived: Gradients) -> tuple[list[Any], list[list[Any]]]:
        """The gradients of the arguments that have some: as they are, and for each second run."""
        raise NotImplementedError

    # The call.

    def __call__(self, call: Any) -> Any:
        if self._leaves_out(call):
            return self._program(call)
        known = Call(call.name, call.step)
        arguments = self._contained(known, lambda: self._arguments(call))
        if arguments is None:
            return self._program(call)
        if self._backward:
            kept = self._contained(known, lambda: self._keep(known, arguments, call))
            return self._program(call) if kept is None else self._followed(known, call, arguments, kept)
        seconds = self._contained(known, lambda: self._run_again(known, arguments, call))
        result = self._program(call)
        if not seconds:
            return result
        if self._fixes:
            fixed = self._contained(known, lambda: self._replaced(result, seconds[0], arguments))
            return result if fixed is None else fixed
        with self._aside():
            self._contained(known, lambda: self._judge_outputs(known, result, seconds))
        return result

    def _contained(self, call: Call, action: Callable[[], Any]) -> Any:
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
                reason = (str(error).splitlines() or [""])[0]
                log.warning(f"free_benchmark: {call.name} was not compared: {type(error).__name__}: {reason}")
        return None

    # Forward.

    def _run_again(self, known: Call, arguments: Any, call: Any) -> list[Any]:
        """The results of the second runs, on copies; the last on the CPU, if the preheat wants it."""
        if not any(map(self._has_digits, arguments.tensors)):
            return []
        known.is_sampled = self._preheat is not None and self._preheat.begin(known.api, known.step)
        if self._preheat is not None and self._preheat.counting:
            return []
        arguments.refuse_unrepeatable()
        keeps = self._mode not in ("improve_precision", "to_cpu")  # autocast would undo these
        runs = [self._second(call, arguments, change, keeps) for change in self._changes(arguments)]
        if known.is_sampled:
            runs.append(self._second(call, arguments, self.on_cpu, False))
        return runs

    def _changes(self, arguments: Any) -> list[Change]:
        """What becomes of each tensor, for each second run: a mode that changes inputs has one for each of them."""
        if self._mode in self.places:
            is_needed = self._mode != "improve_precision" or self._can_improve(arguments)
            return [self.places[self._mode]] if is_needed else []
        return self._one_by_one(arguments.tensors)

    def _judge_outputs(self, call: Call, result: Any, seconds: list[Any]) -> None:
        golden = self._tensors_of(seconds.pop()) if call.is_sampled else None
        outputs, others = self._tensors_of(result), [self._tensors_of(second) for second in seconds]
        self._judge(call, outputs, others, golden, is_one=len(outputs) == 1 and outputs[0] is result)

    # Backward.

    def _judge_gradients(self, call: Call, kept: Any, arrived: Gradients) -> None:
        """The gradients of a call's outputs have arrived."""

        def judge() -> None:
            first, others = self._gradients(kept, arrived)
            with self._aside():
                self._judge(call, first, others, is_one=len(first) == 1)

        self._unrecorded(lambda: self._contained(call, judge))

    # Both.

    def _judge(
        self,
        call: Call,
        results: list[Any],
        others: list[list[Any]],
        golden: list[Any] | None = None,
        *,
        is_one: bool,
    ) -> None:
        """Writes a row for each result from which one of the others is too far: for the farthest."""
        for index, result in enumerate(results):
            if not others or not self._has_digits(result):
                continue
            place = "" if is_one else index
            if self._mode == "to_cpu" and self._preheat is None:
                error, is_wrong = max((self._error_against(result, other[index]) for other in others), key=_worse)
                if is_wrong:
                    self._write(call, result, place, error)
                continue
            found = max((self._between(result, other[index]) for other in others), key=_farther)
            dtype = self._dtype(result)
            least = limit_of(dtype, self._mode)
            if found.exceeds(least if self._preheat is None else self._preheat.limit(call.api, dtype)):
                self._write(call, result, place, found.max_rel)
            if golden is not None and self._preheat is not None:
                agrees = not self._error_against(result, golden[index])[1]
                self._preheat.note(call.api, dtype, found.ratio, agrees, least)

    def _between(self, result: Any, other: Any) -> Distance:
        return self._distance(result, other, least_of(self._dtype(other), self._mode, self._backward))

    def _name(self, call: Call, stage: str) -> str:
        """Of a row."""
        return call.name.removesuffix("forward") + stage

    def _write(self, call: Call, result: Any, index: int | str, max_rel: float | str) -> None:
        rank, stage = self._rank(), "backward" if self._backward else "forward"
        self._rows.write(
            {
                "rank": "" if rank is None else rank,
                "pert_mode": self._mode,
                "stage": stage,
                "step": call.step,
                "api_name": self._name(call, stage),
                "max_rel": max_rel,
                "dtype": result.dtype,
                "shape": result.shape,
                "output_index": index,
            }
        )


def _farther(found: Distance) -> tuple[bool, float]:
    return found.flips, math.inf if math.isnan(found.ratio) else found.ratio


def _worse(found: tuple[float, bool]) -> tuple[bool, float]:
    return found[1], math.inf if math.isnan(found[0]) else found[0]


__all__ = ["Call", "Change", "FreeBenchmark", "Gradients"]

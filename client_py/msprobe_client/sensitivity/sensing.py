"""Measures the calls of a run: each again in float64, unperturbed and perturbed. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from msprobe_client.check import mindspore_calls, replay
from msprobe_client.check.arguments import MINDSPORE, Arguments, Loader, NotReplayable, Payload, framework_of
from msprobe_client.check.calls import Call, Place, calls_of
from msprobe_client.check.checker import RECORDED, first_line, scalars_as
from msprobe_client.check.operators import (
    DROPOUTS,
    GENERATORS,
    CallName,
    function_of,
    reason_to_skip,
    reference_of,
    why_no_function,
)
from msprobe_client.check.other_run import grad_outputs, recorded_gradients
from msprobe_client.client import Client
from msprobe_client.errors import InvalidArgument
from msprobe_client.model import Record
from msprobe_client.sensitivity.estimate import Estimate, limit_of, rounding
from msprobe_client.sensitivity.perturbing import (
    CHANGES,
    DRAWN,
    REPETITIONS,
    coarsest,
    has_digits,
    perturbed,
)
from msprobe_client.sensitivity.rows import RELATIVE_NOISE, Finding, SensitivityRow, repeating


@dataclass(frozen=True, slots=True)
class Settings:
    device: str = (
        RECORDED  # whose outputs are held against float64: those that were saved, or another run's of the call
    )
    mode: str = RELATIVE_NOISE  # of CHANGES or REPETITIONS
    draws: int = 8  # of modes that are drawn
    seed: int = 1234
    limit: float = 0.0  # of both numbers; 0: limit_of
    shown: str = ""  # the source as a command names it


_NONE = torch.finfo(torch.float64).eps  # the limit of what should be 0


class _Refused(Exception):
    """The device's words."""


class Sensing:
    """Measures calls of one step and rank. One thread at a time. payload: as Loader has it. again_on: the device where
    a call runs for the modes of REPETITIONS, with device RECORDED."""

    def __init__(
        self, client: Client, place: Place, settings: Settings, payload: Payload | None = None, again_on: str = "cpu"
    ) -> None:
        self._place = place
        self._settings = settings
        self._loader = Loader(client, place.run, settings.seed, payload)
        self._again_on = again_on if settings.device == RECORDED else settings.device

    def measured(self, call: Call) -> list[SensitivityRow]:
        """Of the outputs, then of the gradients. Never raises for what a call does."""
        record = call.forward
        name = CallName.parse(record.full_name, framework_of(record))
        if name is None:
            return [self._row(record, "", "skip", reason="it is no call of an operator")]
        try:
            given = self._loader.arguments(record)
            if reason := _reason_to_skip(name, given):
                return [self._row(record, name.operation, "skip", reason=reason)]
            grads = None if call.backward is None else grad_outputs(self._loader, call.backward)
            found = list(self._measured(name, call, given, grads))
        except NotReplayable as reason:
            return [self._row(record, name.operation, "skip", reason=str(reason))]
        except _Refused as error:
            return [self._row(record, name.operation, "error", reason=str(error))]
        return found or [self._row(record, name.operation, "skip", reason="it gives no floating-point number")]

    def _measured(self, name: CallName, call: Call, given: Arguments, grads: Any) -> Iterator[SensitivityRow]:
        mode = self._settings.mode
        exact = self._exactly(name, given.mapped(replay.wide, scalars_as(name, given)), grads)
        own = self._own(name, call, given, grads, exact)
        estimates: dict[str, Estimate] = {}
        right, draws = exact, 0
        if mode in CHANGES:
            draws = self._settings.draws if mode in DRAWN else 1
            estimates = self._estimates(name, given, grads, exact, draws)
        else:
            again = self._repeated(name, given, grads)
            if again is None:
                raise NotReplayable(why_no_function(name))
            right = again
        own_of = dict(_places(own)) if own is not None else {}
        exact_of = dict(_places(exact))
        for place, tensor in _places(right):
            if place not in exact_of or not has_digits(exact_of[place].dtype):
                continue
            estimate = estimates.get(place)
            yield self._found(name, call.forward, place, given, own_of.get(place), tensor, estimate, draws)

    def _found(
        self,
        name: CallName,
        record: Record,
        place: str,
        given: Arguments,
        own: torch.Tensor | None,
        right: torch.Tensor,
        estimate: Estimate | None,
        draws: int,
    ) -> SensitivityRow:
        direction, _, rest = place.partition(".")
        inputs = [tensor.dtype for _, tensor in given.tensors if has_digits(tensor.dtype)]
        limit = self._settings.limit or limit_of(coarsest(inputs))
        found = None if estimate is None else estimate.amplification()
        error = None if own is None or name.operation in DROPOUTS else rounding(own, right)
        rounding_limit = None
        if error is not None and own is not None:
            rounding_limit = self._settings.limit or limit_of(torch.finfo(own.dtype).eps)
            if self._settings.mode == "no_change":
                rounding_limit = _NONE
        causes = []
        if found is not None and max(found.mean, found.median) >= limit:
            causes.append("condition")
        if error is not None and rounding_limit is not None and error >= rounding_limit:
            causes.append("rounding")
        nothing = found is None and error is None
        dtype = own.dtype if own is not None else inputs[0]
        return self._row(
            record,
            name.operation,
            "skip" if nothing else "sensitive" if causes else "stable",
            name=f"{name.base}.{direction}.{rest}",
            cause=", ".join(causes),
            amplification=None if found is None else found.mean,
            least=None if found is None else found.least,
            most=None if found is None else found.most,
            median=None if found is None else found.median,
            limit=None if found is None else limit,
            rounding=error,
            rounding_limit=rounding_limit,
            draws=draws if found is not None else 0,
            dtype=str(dtype).removeprefix("torch."),
            shape=tuple(right.shape),
            inputs=given.source,
            reason="there is no finite number to measure, or its outputs were not saved" if nothing else "",
        )

    # --- runs ---

    def _exactly(self, name: CallName, arguments: Arguments, grads: Any) -> replay.Result:
        reference = reference_of(name)
        if reference is None:
            raise NotReplayable(why_no_function(name))
        try:
            return replay.run(reference, arguments, mutates=name.mutates, grad_outputs=grads, seed=self._settings.seed)
        except Exception as error:  # whatever an operator raises
            raise NotReplayable(f"float64: {first_line(error)}") from None

    def _estimates(
        self, name: CallName, given: Arguments, grads: Any, exact: replay.Result, draws: int
    ) -> dict[str, Estimate]:
        estimates = {place: Estimate(tensor) for place, tensor in _places(exact) if has_digits(tensor.dtype)}
        for draw in range(draws):
            moved = perturbed(
                self._settings.mode, given, grads, scalars_as(name, given), self._settings.seed + 1_000_003 * draw
            )
            if moved.relative_change == 0:
                raise NotReplayable(f"{self._settings.mode} changes none of its inputs")
            answer = dict(_places(self._exactly(name, moved.arguments, moved.grad_outputs)))
            for place, estimate in estimates.items():
                if place in answer:
                    estimate.add(answer[place], moved.relative_change)
        return estimates

    def _own(
        self, name: CallName, call: Call, given: Arguments, grads: Any, exact: replay.Result
    ) -> replay.Result | None:
        """What the operator itself gave: as saved, or on the device. None: it was not saved, or inputs were drawn."""
        if self._settings.device != RECORDED or self._settings.mode == "no_change":
            return self._on_device(name, given, grads, self._again_on, lambda tensor: tensor)
        if given.source != "saved":
            return None
        result = replay.Result()
        result.outputs = [
            (place.removeprefix(f"{call.forward.full_name}."), tensor)
            for place, tensor in self._loader.outputs(call.forward)
            if tensor is not None
        ]
        if call.backward is not None:
            of_mindspore = name.framework == MINDSPORE
            places = [place for place, _ in given.tensors] if of_mindspore else exact.node_inputs
            result.gradients, _ = recorded_gradients(self._loader, call.backward, places)
        return result

    def _repeated(self, name: CallName, given: Arguments, grads: Any) -> replay.Result | None:
        device = "cpu" if self._settings.mode == "to_cpu" else self._again_on
        return self._on_device(name, given, grads, device, REPETITIONS[self._settings.mode])

    def _on_device(
        self, name: CallName, given: Arguments, grads: Any, device: str, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> replay.Result | None:
        seed = self._settings.seed
        try:
            if name.framework == MINDSPORE:
                return mindspore_calls.on(device).run(name, given.mapped(change), grads, seed)
            function = function_of(name)
            if function is None:
                return None
            moved = given.mapped(
                lambda tensor: change(replay.on(device)(tensor)),
                lambda value: torch.device(device) if isinstance(value, torch.device) else value,
            )
            return replay.run(function, moved, mutates=name.mutates, grad_outputs=grads, seed=seed)
        except (NotReplayable, InvalidArgument):
            raise
        except (mindspore_calls.Crashed, mindspore_calls.Refused) as error:
            raise _Refused(f"{device}: {error}") from None
        except Exception as error:  # whatever an operator raises
            raise _Refused(f"{device}: {first_line(error)}") from None

    def _row(self, record: Record, operation: str, verdict: Finding, *, name: str = "", **more: Any) -> SensitivityRow:
        rank = str(self._place.rank)
        return SensitivityRow(
            name=name or record.full_name,
            step=self._place.step,
            rank=rank,
            operation=operation,
            verdict=verdict,
            mode=self._settings.mode,
            module=record.parent or "",
            stack=str(record.stack[0]) if record.stack else "",
            repeat=repeating(self._place.step, rank, record.full_name, **asdict(self._settings)),
            **more,
        )


def measured(
    client: Client, places: Iterable[Place], settings: Settings, name: str | None = None
) -> Iterator[tuple[int, int, list[SensitivityRow]]]:
    """The rows of one call after another, with how many of the step's calls are done, and how many there are."""
    for place in places:
        calls = calls_of(client, place, name)
        sensing = Sensing(client, place, settings)
        for done, call in enumerate(calls, start=1):
            yield done, len(calls), sensing.measured(call)


def _places(result: replay.Result) -> Iterator[tuple[str, torch.Tensor]]:
    for place, tensor in result.outputs:
        yield f"forward.{place}", tensor
    for place, tensor in result.gradients:
        yield f"backward.{place}", tensor


def _reason_to_skip(name: CallName, given: Arguments) -> str | None:
    if reason := reason_to_skip(name, given.args, given.kwargs):
        return reason
    if name.operation in GENERATORS:
        return f"{name.operation} draws its numbers, whatever it is given"
    if not any(has_digits(tensor.dtype) and tensor.numel() for _, tensor in given.tensors):
        return "none of its inputs is a floating-point tensor"
    return None

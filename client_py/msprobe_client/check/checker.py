"""Checks the calls of a run: each again on the device and in float64. The server measures the difference and judges."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

from msprobe_client.check import distribution, mindspore_calls, replay, sweep, ties
from msprobe_client.check.arguments import MINDSPORE, Arguments, Draw, Loader, NotReplayable, Payload, framework_of
from msprobe_client.check.calls import Place, calls_of
from msprobe_client.check.measuring import Measuring
from msprobe_client.check.operators import (
    DROPOUTS,
    GENERATORS,
    SUMS_OF_PRODUCTS,
    CallName,
    function_of,
    is_own,
    reason_to_skip,
    reference_of,
    why_no_function,
)
from msprobe_client.check.other_run import OtherRun, grad_outputs, recorded_gradients
from msprobe_client.check.rows import FLOAT64, CheckRow, Outcome, repeating
from msprobe_client.client import Client
from msprobe_client.errors import InvalidArgument
from msprobe_client.model import Record
from msprobe_client.proto import check_pb2

RECORDED = "recorded"
Direction: TypeAlias = Literal["forward", "backward"]
RAISED = "cpu-raised"  # the next wider dtype, as mindstudio-probe's acc_check has it
COMPUTED = (FLOAT64, RAISED)
_OUTCOMES: dict[int, Outcome] = {
    check_pb2.Verdict.PASS: "pass",
    check_pb2.Verdict.WARNING: "warning",
    check_pb2.Verdict.FAIL: "fail",
    check_pb2.Verdict.UNDECIDED: "undecided",
}
# Of a CPU the plain implementation is itself; what rounding of its inputs costs is no divisor for these.
_NOT_BY_NOISE = frozenset({"cann", "documented"})
_COMPARISONS = frozenset(
    {"eq", "ne", "gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal", "not_equal", "equal"}
)


_REPETITIONS = 3  # of a call that fails: it may give something else each time
_NOT_DETERMINISTIC = "not deterministic: the same call on the same inputs gave another result"
_OTHERWISE_AGAIN = "the same call on the same inputs gave another result when it ran again"


@dataclass(frozen=True, slots=True)
class Settings:
    device: str = "cpu"
    golden: str = FLOAT64  # or RAISED, or a run
    policy: str = ""
    seed: int = 1234
    stress: bool = False
    shown: str = ""  # the source as a command names it


@dataclass(frozen=True, slots=True)
class Replayed:
    """The tensors of one call as they were compared."""

    arguments: Arguments
    grad_outputs: Sequence[torch.Tensor | None]
    output: replay.Result
    golden: replay.Result


class Checker:
    """Checks calls of one step and rank. One thread at a time.

    replayed: of the last call; None where it did not run on both sides.
    payload, draw: as Loader has them. again_on: with --device recorded, where a call that fails runs again.
    """

    def __init__(
        self,
        client: Client,
        place: Place,
        settings: Settings,
        measuring: Measuring,
        payload: Payload | None = None,
        draw: Draw | None = None,
        again_on: str = "cpu",
    ) -> None:
        self._place = place
        self._settings = settings
        self._words = asdict(settings)
        self._measuring = measuring
        self._loader = Loader(client, place.run, settings.seed, payload, draw)
        self.replayed: Replayed | None = None
        computed = settings.golden in COMPUTED
        self._golden = None if computed else OtherRun(client, settings.golden, place, settings.seed)
        self._again_on = again_on if settings.device == RECORDED else settings.device

    def check(self, record: Record, backward: Record | None, direction: Direction | None = None) -> Iterator[CheckRow]:
        """record: of the forward call. direction: the rows of this one alone. Never raises for what a call does."""
        if direction == "forward":
            backward = None
        for row in self._found(record, backward, direction):
            # A skip or an error has the name of the call.
            rename = direction == "backward" and backward is not None and row.name == record.full_name
            yield replace(row, name=f"{record.full_name.removesuffix('.forward')}.backward") if rename else row

    def _found(self, record: Record, backward: Record | None, only: Direction | None) -> Iterator[CheckRow]:
        self.replayed = None
        name = CallName.parse(record.full_name, framework_of(record))
        if name is None:
            yield self._skipped(record, "", "it is no call of an operator")
            return
        try:
            given = self._loader.arguments(record)
            if reason := reason_to_skip(name, given.args, given.kwargs):
                yield self._skipped(record, name.operation, reason)
                return
            for variant, arguments in sweep.variants(given) if self._settings.stress else [("", given)]:
                for row in self._check(name, record, backward, arguments, only):
                    yield replace(row, variant=variant)
        except NotReplayable as reason:
            yield self._skipped(record, name.operation, str(reason))

    def _check(
        self, name: CallName, record: Record, backward: Record | None, arguments: Arguments, only: Direction | None
    ) -> Iterator[CheckRow]:
        seed = self._settings.seed
        grads = None if backward is None else grad_outputs(self._loader, backward)
        random = name.operation in GENERATORS or self._drops(name, arguments)
        golden = self._golden_result(name, record, backward, arguments, grads)
        try:
            output = self._device_result(name, record, backward, arguments, grads, golden.node_inputs)
        except (NotReplayable, InvalidArgument):
            raise
        except mindspore_calls.Crashed as error:
            yield self._row(record, name.operation, "crashed", reason=str(error))
            return
        except mindspore_calls.Refused as error:
            yield self._row(record, name.operation, "error", reason=f"{self._settings.device}: {error}")
            return
        except Exception as error:  # whatever an operator raises
            yield self._row(record, name.operation, "error", reason=f"{self._settings.device}: {first_line(error)}")
            return
        self.replayed = Replayed(arguments, grads or [], output, golden)
        if random and only == "backward":
            return
        if random:
            yield self._random_row(name, record, arguments, output, golden)
            return
        plain: replay.Result | None = None
        asked = False

        def plain_result() -> replay.Result | None:
            nonlocal plain, asked
            if not asked:
                asked = True
                plain = self._plain_result(name, record, arguments, grads, seed)
            return plain

        repeated: list[replay.Result] = []

        def again() -> Iterator[replay.Result]:
            """The same call on the device, a few more times, as long as it runs."""
            for number in range(_REPETITIONS):
                if number == len(repeated):
                    try:
                        found = self._run_on(self._again_on, name, arguments, grads)
                    except Exception:  # whatever an operator raises; the call has its verdict
                        return
                    repeated.append(found)
                yield repeated[number]

        for direction, mine, theirs in (
            ("forward", output.outputs, golden.outputs),
            ("backward", output.gradients, golden.gradients),
        ):
            if only not in (None, direction):
                continue
            golden_by_place = dict(theirs)
            base = f"{name.base}.{direction}"
            for place, tensor in mine:
                if place not in golden_by_place:
                    reason = f"the golden side has no {place}"
                    yield self._row(record, name.operation, "skip", name=f"{base}.{place}", reason=reason)
                    continue
                row = self._judged(
                    record,
                    name,
                    f"{base}.{place}",
                    tensor,
                    golden_by_place[place],
                    arguments,
                    lambda place=place, direction=direction: _at(plain_result(), direction, place),
                )
                others = (_at(result, direction, place) for result in again())
                yield self._told_from_race(row, tensor, others)
        if grads is not None and (reason := output.no_backward or golden.no_backward):
            yield self._row(record, name.operation, "skip", name=f"{name.base}.backward", reason=reason)

    # --- what is compared ---

    def _device_result(
        self,
        name: CallName,
        record: Record,
        backward: Record | None,
        arguments: Arguments,
        grads: Any,
        node_inputs: Sequence[str],
    ) -> replay.Result:
        if self._settings.device == RECORDED:
            return self._recorded(record, backward, arguments, node_inputs)
        return self._run_on(self._settings.device, name, arguments, grads)

    def _run_on(self, device: str, name: CallName, arguments: Arguments, grads: Any) -> replay.Result:
        if name.framework == MINDSPORE:
            return mindspore_calls.on(device).run(name, arguments, grads, self._settings.seed)
        function = function_of(name)
        if function is None:
            raise NotReplayable(why_no_function(name))
        moved = arguments.mapped(replay.on(device), lambda value: _device_in(value, device))
        return replay.run(function, moved, mutates=name.mutates, grad_outputs=grads, seed=self._settings.seed)

    def _recorded(
        self,
        record: Record,
        backward: Record | None,
        arguments: Arguments,
        node_inputs: Sequence[str],
    ) -> replay.Result:
        if arguments.source != "saved":
            raise NotReplayable("its inputs were not saved, so that its outputs cannot be checked")
        result = replay.Result()
        for place, tensor in self._loader.outputs(record):
            if tensor is None:
                raise NotReplayable("its outputs were not saved; capture with task tensor")
            result.outputs.append((place.removeprefix(f"{record.full_name}."), tensor))
        if backward is None:
            return result
        if framework_of(record) == MINDSPORE:
            node_inputs = [place for place, _ in arguments.tensors]  # it records a gradient for each
        result.gradients, result.no_backward = recorded_gradients(self._loader, backward, node_inputs)
        return result

    def _golden_result(
        self, name: CallName, record: Record, backward: Record | None, arguments: Arguments, grads: Any
    ) -> replay.Result:
        if self._golden is None:
            return self._computed(name, arguments, grads)

        def exact(given: Arguments, incoming: Any) -> replay.Result | None:
            try:
                return self._computed(name, given, incoming)
            except NotReplayable:
                return None

        return self._golden.result(record, backward, arguments, grads, exact)

    def _computed(self, name: CallName, arguments: Arguments, grads: Any) -> replay.Result:
        reference = reference_of(name)
        if reference is None:
            raise NotReplayable(why_no_function(name))
        if self._settings.golden == RAISED:
            exact = arguments.mapped(replay.raised(name.operation, arguments))
        else:
            exact = arguments.mapped(replay.wide, scalars_as(name, arguments))
        try:
            return replay.run(reference, exact, mutates=name.mutates, grad_outputs=grads, seed=self._settings.seed)
        except Exception as error:  # whatever an operator raises
            where = "float64" if self._settings.golden == FLOAT64 else "golden value"
            raise NotReplayable(f"{where}: {first_line(error)}") from None

    def _is_of_a_cpu(self, name: CallName, record: Record) -> bool:
        """Whether a CPU's implementation is what is checked, which beside itself would always be right.

        What was recorded counts only for operators that somebody registered: those of torch may be another build's. A
        dump directory does not say where its tensors were; it counts as that of another device.
        """
        if self._settings.device != RECORDED:
            return self._settings.device.partition(":")[0] == "cpu"  # torch alone knows no "npu"
        devices = {stats.device.partition(":")[0] for _, stats in record.tensors()}
        return is_own(name) and devices == {"cpu"}

    def _plain_result(
        self, name: CallName, record: Record, arguments: Arguments, grads: Any, seed: int
    ) -> replay.Result | None:
        """The same on a CPU in its own dtype; of a CPU itself, in float64 rounded otherwise."""
        reference = reference_of(name)
        if reference is None or self._golden is not None:
            return None

        try:
            if not self._is_of_a_cpu(name, record):
                moved = arguments.mapped(replay.on("cpu"))
                return replay.run(reference, moved, mutates=name.mutates, grad_outputs=grads, seed=seed)
            return replay.rounded_otherwise(
                reference,
                arguments,
                mutates=name.mutates,
                grad_outputs=grads,
                seed=seed,
                scalar=scalars_as(name, arguments),
                sums=name.operation in SUMS_OF_PRODUCTS,
            )
        except Exception:  # a CPU may lack the operator for this dtype
            return None

    # --- rows ---

    def _judged(
        self,
        record: Record,
        name: CallName,
        row: str,
        tensor: torch.Tensor,
        golden: torch.Tensor,
        arguments: Arguments,
        plain: Any,
    ) -> CheckRow:
        operation = name.operation.rsplit(".", 1)[-1]
        shape = tuple(tensor.shape)
        known: dict[str, Any] = {"name": row, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": shape}
        known["inputs"] = arguments.source
        if tensor.shape != golden.shape:
            reason = f"the shape is {list(shape)}, that of the golden value {list(golden.shape)}"
            return self._row(record, name.operation, "fail", rule="shape", reason=reason, **known)
        if _kind(tensor.dtype) != _kind(golden.dtype):
            reason = f"the dtype is {tensor.dtype}, that of the golden value {golden.dtype}"
            return self._row(record, name.operation, "fail", rule="dtype", reason=reason, **known)
        if tensor.numel() == 0:
            return self._row(record, name.operation, "pass", rule="no_elements", **known)
        # Of another device, or recorded, it is there always, so that every policy can be tried on what was measured.
        recorded = self._settings.device == RECORDED
        at_once = recorded or not self._is_of_a_cpu(name, record) or self._settings.policy == "fp64-ratio"
        beside = _as(plain(), tensor) if at_once else None
        answer = self._measuring.measured(operation, tensor, golden, beside)
        if answer.error:
            return self._row(record, name.operation, "skip", reason=answer.error, **known)
        outcome = _OUTCOMES[answer.verdict.outcome]
        if outcome == "fail" and ties.point_to_equals(operation, arguments, tensor, golden):
            return self._row(record, name.operation, "pass", rule="equal_elements", **known)
        noise_counts = self._settings.policy not in _NOT_BY_NOISE
        if outcome != "pass" and beside is None and tensor.dtype.is_floating_point and noise_counts:
            beside = _as(plain(), tensor)
            if beside is not None:
                answer = self._measuring.measured(operation, tensor, golden, beside)
                outcome = _OUTCOMES[answer.verdict.outcome]
        accuracy, verdict = answer.accuracy, answer.verdict
        if accuracy.max_abs > 0 or accuracy.nan_mismatches + accuracy.inf_mismatches + accuracy.inf_sign_mismatches:
            known["worst_index"] = _index(accuracy.worst_index // (2 if tensor.dtype.is_complex else 1), shape)
            known["worst_output"] = accuracy.worst_output
            known["worst_golden"] = accuracy.worst_golden
        return self._row(
            record,
            name.operation,
            outcome,
            policy=verdict.policy,
            rule=verdict.rule,
            measured=verdict.measured,
            limit=verdict.limit,
            accuracy=_numbers(accuracy),
            plain=_numbers(answer.plain) if answer.HasField("plain") else {},
            **known,
        )

    def _told_from_race(self, row: CheckRow, tensor: torch.Tensor, others: Iterator[torch.Tensor | None]) -> CheckRow:
        """others: what the same call gave again, run as they are asked for: of a call that fails alone."""
        if row.verdict != "fail":
            return row
        recorded = self._settings.device == RECORDED
        first = next(others, None) if recorded else tensor
        if first is None:
            return row
        if not all(_same_bits(first, other) for other in others):
            return replace(row, rule="deterministic", reason=_NOT_DETERMINISTIC)
        # Another process may have another operator, or another device: that alone is no race.
        if recorded and not _same_bits(first, tensor):
            return replace(row, reason=f"{_OTHERWISE_AGAIN} on {self._again_on}")
        return row

    def _drops(self, name: CallName, arguments: Arguments) -> bool:
        return name.operation in DROPOUTS and 0 < _probability(arguments) < 1 and _training(arguments)

    def _random_row(
        self, name: CallName, record: Record, arguments: Arguments, output: replay.Result, golden: replay.Result
    ) -> CheckRow:
        (place, tensor), *_ = output.outputs
        if name.operation in GENERATORS:
            agreement = distribution.same_distribution(tensor, dict(golden.outputs)[place])
        else:
            agreement = distribution.dropped_as_often(tensor, arguments.args[0], _probability(arguments))
        return self._row(
            record,
            name.operation,
            "pass" if agreement.holds else "fail",
            name=f"{record.full_name}.{place}",
            policy="distribution",
            rule=agreement.rule,
            measured=agreement.measured,
            limit=agreement.limit,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            inputs=arguments.source,
        )

    def _skipped(self, record: Record, operation: str, reason: str) -> CheckRow:
        return self._row(record, operation, "skip", reason=reason)

    def _row(self, record: Record, operation: str, verdict: Outcome, *, name: str = "", **more: Any) -> CheckRow:
        rank = str(self._place.rank)
        return CheckRow(
            name=name or record.full_name,
            step=self._place.step,
            rank=rank,
            operation=operation,
            verdict=verdict,
            stack=str(record.stack[0]) if record.stack else "",
            repeat=repeating(self._place.step, rank, record.full_name, **self._words),
            **more,
        )


def checked(
    client: Client, places: Iterable[Place], settings: Settings, name: str | None = None
) -> Iterator[tuple[int, int, list[CheckRow]]]:
    """The rows of one call after another, with how many of the step's calls are done, and how many there are."""
    with Measuring(client, settings.policy) as measuring:
        for place in places:
            calls = calls_of(client, place, name)
            checker = Checker(client, place, settings, measuring)
            for done, call in enumerate(calls, start=1):
                yield done, len(calls), list(checker.check(call.forward, call.backward))


def _at(result: replay.Result | None, direction: str, place: str) -> torch.Tensor | None:
    if result is None:
        return None
    return dict(result.outputs if direction == "forward" else result.gradients).get(place)


def _same_bits(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """NaN is equal to NaN. Another shape is another result."""
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = one.cpu(), other.cpu()
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    exact, again = one.double(), other.double()
    return bool(((exact == again) | (exact.isnan() & again.isnan())).all())


def _as(plain: torch.Tensor | None, tensor: torch.Tensor) -> torch.Tensor | None:
    if plain is None or plain.shape != tensor.shape or _kind(plain.dtype) != _kind(tensor.dtype):
        return None
    return plain.to("cpu", tensor.dtype)


def _kind(dtype: torch.dtype) -> str:
    return "complex" if dtype.is_complex else "float" if dtype.is_floating_point else "exact"


def _numbers(accuracy: check_pb2.Accuracy) -> dict[str, float]:
    return {field.name: getattr(accuracy, field.name) for field in accuracy.DESCRIPTOR.fields}


def _index(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        index.append(flat % max(size, 1))
        flat //= max(size, 1)
    return tuple(reversed(index))


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _device_in(value: Any, device: str) -> Any:
    return torch.device(device) if isinstance(value, torch.device) else value


def scalars_as(name: CallName, arguments: Arguments) -> Any:
    """Numbers as the operator takes them: rounded to what it computes in, or for comparisons to the tensors' dtype."""
    dtypes = {tensor.dtype for _, tensor in arguments.tensors if tensor.dtype.is_floating_point}
    compares = name.operation.strip("_") in _COMPARISONS
    narrow = bool(dtypes) and torch.float64 not in dtypes

    def scalar(value: Any) -> Any:
        if isinstance(value, float) and narrow and math.isfinite(value) and abs(value) < 3e38:
            if compares and len(dtypes) == 1:
                return torch.tensor(value, dtype=next(iter(dtypes))).item()
            return struct.unpack("f", struct.pack("f", value))[0]
        return replay.wide(value)

    return scalar


def _probability(arguments: Arguments) -> float:
    given = arguments.kwargs.get("p", arguments.args[1] if len(arguments.args) > 1 else 0.5)
    return float(given) if isinstance(given, int | float) else 0.5


def _training(arguments: Arguments) -> bool:
    given = arguments.kwargs.get("training", arguments.args[2] if len(arguments.args) > 2 else True)
    return bool(given)

"""The calls of a dump.json, each checked as mindstudio-probe's acc_check checks it: rows of its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_client.check.operators import CallName
from msprobe_client.check.rows import CheckRow
from msprobe_client.check.standards import Standards
from msprobe_client.compat.accuracy_tables import (
    BLANK,
    PASS,
    SKIP,
    CallRows,
    details_row,
    skipped_row,
    status_of,
    worst,
)
from msprobe_client.model import Rank, Record, TensorStats

if TYPE_CHECKING:
    from msprobe_client.check.checker import Replayed
    from msprobe_client.client import Client

POLICY = "acc-check"
# mindstudio-probe's exceptions. It runs these nowhere, and those only forward.
_NOT_RUN = frozenset({"to"})
_FORWARD_ONLY = frozenset({"masked_select", "repeat_interleave"})
_OF_SEVERAL_OUTPUTS = frozenset({"topk", "npu_fusion_attention"})


@dataclass(frozen=True, slots=True)
class Choice:
    """Which calls are checked. white: empty for all; black goes first."""

    white: Sequence[str] = ()
    black: Sequence[str] = ()
    filtered: bool = False  # leaves out calls like an earlier one of the same operator
    done: Collection[str] = ()  # by an earlier check

    def reason_to_skip(self, operation: str) -> str:
        if operation in _NOT_RUN:
            return f"{operation} is not run again"
        if operation in self.black:
            return f"{operation} is in the black list"
        return f"{operation} is not in the white list" if self.white and operation not in self.white else ""


@dataclass(frozen=True, slots=True)
class Source:
    """A dump.json that a server holds as a run of one step and rank."""

    run: str
    step: int
    rank: str
    dump: str  # as the user named it
    device: str
    framework: str = "pytorch"  # or "mindspore"


class ReplayedCalls:
    """Checks calls by name, one at a time."""

    def __init__(self, client: Client, source: Source, error_folder: Path | None = None) -> None:
        from msprobe_client.check.calls import Place
        from msprobe_client.check.checker import RAISED, Checker, Settings
        from msprobe_client.check.measuring import Measuring

        place = Place(source.run, source.step, Rank.parse(source.rank))
        self._records = {
            record.full_name: record
            for record in client.records(place.run, step=place.step, rank=place.rank)
            if record.kind == "api"
        }
        settings = Settings(source.device, RAISED, POLICY, shown=source.dump)
        self._measuring = Measuring(client, POLICY)
        self._checker = Checker(client, place, settings, self._measuring)
        self._standards = Standards(client)
        self._error_folder = error_folder

    def __enter__(self) -> ReplayedCalls:
        return self

    def __exit__(self, *error: object) -> None:
        self._measuring.close()

    def chosen(self, choice: Choice) -> list[str]:
        """Functional.linear.0 of each forward call, in order."""
        seen: set[tuple[str, str]] = set()
        names = []
        for record in self._records.values():
            if record.direction != "forward":
                continue
            base = record.full_name.removesuffix(".forward")
            key = (base.rsplit(".", 1)[0], _arguments_of(record))
            if not (choice.filtered and key in seen) and base not in choice.done:
                names.append(base)
            seen.add(key)
        return names

    def checked(self, name: str) -> tuple[list[CheckRow], Replayed | None]:
        """The rows of the call, and its tensors."""
        rows = list(self._checker.check(self._records[f"{name}.forward"], self._records.get(f"{name}.backward")))
        return rows, self._checker.replayed

    @property
    def replayed(self) -> Replayed | None:
        """The tensors of the last call; None: it did not run on both sides."""
        return self._checker.replayed

    def rows(self, name: str, choice: Choice) -> CallRows:
        call = CallName.parse(f"{name}.forward")
        if call is not None and (reason := choice.reason_to_skip(call.operation)):
            return skipped_call(name, reason)
        found, replayed = self.checked(name)
        if replayed is None:
            return skipped_call(name, found[0].reason, status_of(found[0]))
        forward = [row for row in found if not row.name.startswith(f"{name}.backward")]
        details = [self._details(row.name, row, replayed) for row in forward]
        forward_status = worst(map(status_of, forward))
        backward_status, message = BLANK, ""
        if f"{name}.backward" in self._records:
            gradients = [row for row in found if row not in forward]
            backward_status, message, more = self._backward(name, found[0].operation, gradients, replayed)
            details += more
        call_rows = CallRows(name, forward_status, backward_status, message, details)
        if self._error_folder is not None and {forward_status, backward_status} - {PASS, BLANK}:
            save(self._error_folder, name, replayed)
        return call_rows

    def _backward(
        self, name: str, operation: str, rows: list[CheckRow], replayed: Replayed
    ) -> tuple[str, str, list[list[str]]]:
        """Status, message, and a row for each tensor argument, then for each keyword argument that has a gradient."""
        base = f"{name}.backward.output"
        reason = ""
        if operation in _FORWARD_ONLY:
            reason = f"the gradients of {operation} are not checked here; msprobe-client check does"
        elif len(replayed.output.outputs) > 1 and operation not in _OF_SEVERAL_OUTPUTS:
            reason = "gradients of several outputs are not checked here; msprobe-client check does"
        elif replayed.output.no_backward and not rows[0].dtype:
            reason = rows[0].reason
        if reason:
            return SKIP, reason, [skipped_row(f"{base}.0", reason)]
        by_place = {row.name.removeprefix(f"{name}.backward."): row for row in rows}
        places = [place for place, _ in replayed.arguments.tensors]
        shown = [place for place in places if place.startswith("input.") or place in by_place]
        if not by_place:
            return BLANK, "", []
        details = []
        for index, place in enumerate(shown):
            row = by_place.get(place)
            if row is None:
                details.append(skipped_row(f"{base}.{index}", "it has no gradient"))
            else:
                details.append(self._details(f"{base}.{index}", row, replayed))
        return worst(map(status_of, rows)), "", details

    def _details(self, name: str, row: CheckRow, replayed: Replayed) -> list[str]:
        backward = ".backward." in row.name
        golden = dict(replayed.golden.gradients if backward else replayed.golden.outputs)
        place = row.name.split(".backward." if backward else ".forward.", 1)[1] if row.dtype else ""
        dtype = str(golden[place].dtype).removeprefix("torch.") if place in golden else ""
        return details_row(name, row, dtype, self._standards.of(row.operation, row.dtype))


def skipped_call(name: str, reason: str, status: str = SKIP) -> CallRows:
    """A call that was not compared; error: one that only the golden side could run."""
    backward = SKIP if status == SKIP else BLANK
    return CallRows(name, status, backward, reason, [skipped_row(f"{name}.forward.output.0", reason, status)])


def save(folder: Path, name: str, replayed: Replayed) -> None:
    """The tensors of a call, as .pt files."""
    import torch

    sides = [
        ("forward", replayed.arguments.tensors),
        ("forward.output.bench", _indexed(replayed.golden.outputs)),
        ("forward.output.device", _indexed(replayed.output.outputs)),
        ("backward.input", [(str(i), grad) for i, grad in enumerate(replayed.grad_outputs) if grad is not None]),
        ("backward.output.bench", _indexed(replayed.golden.gradients)),
        ("backward.output.device", _indexed(replayed.output.gradients)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for word, tensors in sides:
        for place, tensor in tensors:
            torch.save(tensor.detach().cpu().contiguous().clone(), folder / f"{name}.{word}.{place}.pt")


def _indexed(tensors: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for place, tensor in tensors:
        yield place.split(".", 1)[1], tensor


def _arguments_of(record: Record) -> str:
    """A text that two calls share if they differ in the range and the content of their tensors at most."""

    def known(value: Any) -> Any:
        if isinstance(value, TensorStats):
            return ("tensor", value.dtype, value.shape, value.requires_grad, value.mean, value.norm)
        if isinstance(value, dict):
            return {key: known(item) for key, item in value.items()}
        return [known(item) for item in value] if isinstance(value, list | tuple) else value

    return repr([known(record.fields.get(word)) for word in ("input_args", "input_kwargs")])

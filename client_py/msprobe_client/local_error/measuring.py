"""Holds a run against a golden: outputs as they are, and outputs that came of the golden's inputs. Imports torch.

Modules were run on these by debugger.local_error, which made two steps of the run. Operators run on them here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

from msprobe_client.check import replay
from msprobe_client.check.arguments import Loader, NotReplayable, framework_of
from msprobe_client.check.checker import first_line
from msprobe_client.check.operators import DROPOUTS, GENERATORS, CallName, function_of, reason_to_skip, why_no_function
from msprobe_client.client import Client
from msprobe_client.local_error.rows import NOT_RUN, LocalErrorRow, Sides
from msprobe_client.model import Rank, Record


@dataclass(frozen=True, slots=True)
class Settings:
    device: str = "cpu"  # where operators run
    limit: float = 0.0  # 0: limit_of


def limit_of(dtype: torch.dtype) -> float:
    """Of what is added: two roundings of the output; of 32 and 64 bits, which also add up in that dtype, 64."""
    eps = torch.finfo(dtype).eps
    return max(2 * eps, 64 * torch.finfo(torch.float64 if dtype.itemsize >= 8 else torch.float32).eps)


class LocalErrors:
    """Of one step and rank. One thread at a time. name: a shell pattern over names of calls."""

    def __init__(self, client: Client, sides: Sides, settings: Settings, name: str | None = None) -> None:
        self._sides, self._settings = sides, settings
        self._loader = Loader(client, sides.run, 0)
        self._golden_loader = Loader(client, sides.golden, 0)
        self._own = _forward(client, sides.run, sides.step, sides.rank, name)
        self._golden = _forward(client, sides.golden, sides.golden_step, sides.golden_rank, name)
        self._again = {} if sides.again is None else _forward(client, sides.run, sides.again, sides.rank, name)

    def __len__(self) -> int:
        return len(self._own)

    def rows(self) -> Iterator[list[LocalErrorRow]]:
        """Those of one call after another, in the run's order. Never raises for what a call does."""
        for name, own in self._own.items():
            golden = self._golden.get(name)
            if golden is None:
                yield [self._skipped(own, "the golden has no such call")]
                continue
            try:
                yield list(self._of_call(own, golden))
            except NotReplayable as reason:
                yield [self._skipped(own, str(reason))]

    def _of_call(self, own: Record, golden: Record) -> Iterator[LocalErrorRow]:
        right = _outputs(self._golden_loader, golden)
        present = _outputs(self._loader, own)
        local = self._module(own) if own.kind == "module" else self._operator(golden)
        found = False
        for place, tensor in right.items():
            if not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            found = True
            if place not in present or place not in local:
                yield self._skipped(own, f"one side has no {place}")
                continue
            added = error(local[place], tensor, tensor)
            limit = self._settings.limit or limit_of(present[place].dtype)
            yield LocalErrorRow(
                name=f"{own.full_name}.{place}",
                step=own.step,
                rank=str(own.rank),
                kind=own.kind,
                verdict="passes" if added <= limit else "adds",
                total=error(present[place], tensor, tensor),
                added=added,
                inherited=error(present[place], local[place], tensor),
                limit=limit,
                dtype=str(present[place].dtype).removeprefix("torch."),
            )
        if not found:
            yield self._skipped(own, "it gives no floating-point number")

    def _module(self, own: Record) -> Mapping[str, torch.Tensor]:
        record = self._again.get(own.full_name)
        if record is None:
            raise NotReplayable(NOT_RUN)
        return _outputs(self._loader, record)

    def _operator(self, golden: Record) -> Mapping[str, torch.Tensor]:
        name = CallName.parse(golden.full_name, framework_of(golden))
        if name is None or name.framework != "pytorch":
            raise NotReplayable("it is no call of an operator of torch")
        given = self._golden_loader.arguments(golden)
        if given.source != "saved":
            raise NotReplayable("the golden's inputs were not saved; capture it with task tensor")
        if reason := reason_to_skip(name, given.args, given.kwargs):
            raise NotReplayable(reason)
        if name.operation in GENERATORS or name.operation in DROPOUTS:
            raise NotReplayable(f"{name.operation} draws its numbers")
        function = function_of(name)
        if function is None:
            raise NotReplayable(why_no_function(name))
        device = self._settings.device
        moved = given.mapped(
            replay.on(device), lambda value: torch.device(device) if isinstance(value, torch.device) else value
        )
        try:
            return dict(replay.run(function, moved, mutates=name.mutates, grad_outputs=None, seed=0).outputs)
        except Exception as failure:  # whatever an operator raises
            raise NotReplayable(f"{device}: {first_line(failure)}") from None

    def _skipped(self, record: Record, reason: str) -> LocalErrorRow:
        return LocalErrorRow(
            name=record.full_name,
            step=record.step,
            rank=str(record.rank),
            kind=record.kind,
            verdict="skip",
            reason=reason,
        )


def error(value: torch.Tensor, other: torch.Tensor, scale: torch.Tensor) -> float:
    """The norm of the difference over that of scale; 0 where both are the same, NaN and infinities among them."""
    if value.shape != other.shape:
        return math.inf
    first, second, size = (_wide(each) for each in (value, other, scale))
    same = (first == second) | (first.isnan() & second.isnan())
    difference = torch.where(same, torch.zeros_like(first), first - second)
    if not bool(torch.isfinite(difference).all()):
        return math.inf
    distance = float(torch.linalg.vector_norm(difference))
    norm = float(torch.linalg.vector_norm(torch.where(torch.isfinite(size), size, torch.zeros_like(size))))
    return distance / norm if norm else (math.inf if distance else 0.0)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", torch.complex128 if tensor.is_complex() else torch.float64)


def _outputs(loader: Loader, record: Record) -> Mapping[str, torch.Tensor]:
    """By place: "output.0"."""
    found = {}
    for name, tensor in loader.outputs(record):
        if tensor is None:
            raise NotReplayable("its outputs were not saved; capture with task tensor")
        found[name.removeprefix(f"{record.full_name}.")] = tensor
    return found


def _forward(client: Client, run: str, step: int, rank: Rank, name: str | None) -> dict[str, Record]:
    records = client.records(run, step=step, rank=rank)
    return {
        record.full_name: record
        for record in records
        if record.kind in ("api", "module")
        and record.direction == "forward"
        and (name is None or fnmatchcase(record.full_name, name))
    }

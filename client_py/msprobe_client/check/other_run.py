"""The calls of another run as golden values: what it saved of the call of the same step, rank and name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch

from msprobe_client.check import replay
from msprobe_client.check.arguments import Arguments, Loader, NotReplayable
from msprobe_client.check.calls import Call, Place, paired
from msprobe_client.errors import NotFound
from msprobe_client.model import Rank, Record, TensorStats

if TYPE_CHECKING:
    from msprobe_client.client import Client

Gradients: TypeAlias = Sequence[torch.Tensor | None]
# The float64 result of a call; None: there is none.
Exact: TypeAlias = Callable[[Arguments, Gradients | None], replay.Result | None]


class OtherRun:
    """The outputs and gradients that a run saved, as golden values of the calls of `place`.

    Where a call had other inputs there, because something before it went another way, what it gave there is moved by
    what float64 makes of that difference. So a call has to answer for itself alone. One thread at a time.
    """

    def __init__(self, client: Client, run: str, place: Place, seed: int) -> None:
        self._client = client
        self._run = run
        self._place = Place(run, place.step, self._rank(place))
        self._loader = Loader(client, run, seed)
        self._calls: dict[str, Call] = {}

    def result(
        self, record: Record, backward: Record | None, arguments: Arguments, grads: Gradients | None, exact: Exact
    ) -> replay.Result:
        """record and backward: of the call that is checked. Raises NotReplayable where this run has nothing for it."""
        other = self._call(record, backward)
        if arguments.source != "saved":
            raise NotReplayable(f"its inputs were not saved, so that run {self._run} says nothing of its outputs")
        saved = [(place, tensor) for place, tensor in self._loader.outputs(other.forward) if tensor is not None]
        if not saved:
            raise NotReplayable(f"run {self._run} has not saved its outputs")
        result = replay.Result([(place.removeprefix(f"{record.full_name}."), tensor) for place, tensor in saved])
        part = _first_difference(record, other.forward)
        if backward is not None and other.backward is not None:
            part = part or _first_difference(backward, other.backward)
        mine = exact(arguments, grads) if part or backward is not None else None
        if backward is not None:
            result.node_inputs = [] if mine is None else mine.node_inputs
            result.gradients, result.no_backward = self._gradients(other, result.node_inputs)
        if not part:
            return result
        theirs = exact(self._loader.arguments(other.forward), self._grad_outputs(other) if grads is not None else None)
        if mine is None or theirs is None:
            raise NotReplayable(f"{part} differs from that of run {self._run}, and there is no float64 to allow for it")
        result.outputs = _moved(result.outputs, dict(mine.outputs), dict(theirs.outputs))
        result.gradients = _moved(result.gradients, dict(mine.gradients), dict(theirs.gradients))
        return result

    def _rank(self, place: Place) -> Rank:
        """The same rank; where both have one process only, that one."""
        ranks = [each.rank for each in self._client.steps(self._run) if each.step == place.step]
        return ranks[0] if len(ranks) == 1 else place.rank

    def _call(self, record: Record, backward: Record | None) -> Call:
        """The records are read again where they lack it: the step may be under way."""
        found = self._calls.get(record.full_name)
        if found is None or (backward is not None and found.backward is None):
            place = self._place
            try:
                records = list(self._client.records(place.run, step=place.step, rank=place.rank))
            except NotFound:
                raise NotReplayable(f"run {place.run} has no step {place.step} of {place.rank}") from None
            self._calls = {call.forward.full_name: call for call in paired(records)}
            found = self._calls.get(record.full_name)
        if found is None:
            raise NotReplayable(f"run {self._run} has no {record.full_name} in step {self._place.step}")
        return found

    def _gradients(self, other: Call, node_inputs: Sequence[str]) -> tuple[list[tuple[str, torch.Tensor]], str]:
        if other.backward is None:
            return [], f"run {self._run} has no backward of this call"
        return recorded_gradients(self._loader, other.backward, node_inputs)

    def _grad_outputs(self, other: Call) -> Gradients | None:
        return None if other.backward is None else grad_outputs(self._loader, other.backward)


def grad_outputs(loader: Loader, backward: Record) -> list[torch.Tensor | None]:
    """The gradients that the call was given."""
    name = f"{backward.full_name}.input"
    return [
        loader.tensor(backward, f"{name}.{i}", item) if isinstance(item, TensorStats) else None
        for i, item in enumerate(backward.fields.get("input") or [])
    ]


def recorded_gradients(
    loader: Loader, backward: Record, node_inputs: Sequence[str]
) -> tuple[list[tuple[str, torch.Tensor]], str]:
    """The saved gradients by place of their argument; or why there are none."""
    grads = backward.fields.get("output") or []
    # A record holds the gradients of the innermost node, which need not be those of the arguments.
    if not grads or any(grad is not None and not "".join(node_inputs[i : i + 1]) for i, grad in enumerate(grads)):
        return [], "the gradients that were recorded are those of an inner node, not of the arguments"
    saved = dict(loader.outputs(backward))
    found = ((node_inputs[i], saved.get(f"{backward.full_name}.output.{i}")) for i, g in enumerate(grads) if g)
    return [(place, tensor) for place, tensor in found if tensor is not None], ""


def _first_difference(record: Record, other: Record) -> str:
    """The first input whose content differs; "": none does. What the other run has not saved counts as equal."""
    theirs = dict(other.tensors())
    for name, stats in record.tensors():
        if name.startswith(f"{record.full_name}.output"):
            continue
        place = name.removeprefix(f"{record.full_name}.")
        there = theirs.get(name)
        if there is None or (stats.dtype, stats.shape) != (there.dtype, there.shape):
            return place
        if there.payload is not None and (stats.payload is None or stats.payload.hash != there.payload.hash):
            return place
    return ""


def _moved(
    golden: list[tuple[str, torch.Tensor]], mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]
) -> list[tuple[str, torch.Tensor]]:
    return [
        (place, _carried(tensor, mine[place], theirs.get(place)) if place in mine else tensor)
        for place, tensor in golden
    ]


def _carried(golden: torch.Tensor, mine: torch.Tensor, theirs: torch.Tensor | None) -> torch.Tensor:
    """golden + (mine - theirs). Where these have no difference, as NaN, infinity and other shapes: mine."""
    if theirs is None or not golden.shape == mine.shape == theirs.shape:
        return mine
    if not (mine.is_floating_point() or mine.is_complex()):
        return torch.where(mine == theirs, golden, mine.to(golden.dtype))
    difference = mine - theirs
    return torch.where(difference.isfinite(), golden.to(mine.dtype) + difference, mine)

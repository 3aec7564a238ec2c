"""acc_check of a dump.json of MindSpore: each call beside the function of torch that means the same, on the CPU.

The tables have other columns than those of PyTorch, and one standard for every operator: cosine and largest error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from msprobe_client.check import mindspore_calls, replay
from msprobe_client.check.arguments import MINDSPORE, MINDSPORE_DTYPES, Arguments, Loader, NotReplayable, dtype_of
from msprobe_client.check.operators import CallName, is_like_torch, reason_to_skip, reference_of
from msprobe_client.compat.accuracy_tables import ERROR, PASS, SKIP, CallRows, Layout
from msprobe_client.compat.replayed_calls import Choice, Source
from msprobe_client.model import Rank, Record, TensorStats

if TYPE_CHECKING:
    from msprobe_client.client import Client

LAYOUT = Layout(
    result=("API Name", "Forward Test Success", "Backward Test Success", "Message"),
    details=(
        "API Name",
        "Bench Dtype",
        "Tested Dtype",
        "Shape",
        "Cosine",
        "MaxAbsErr",
        "MaxRelativeErr",
        "Status",
        "Message",
    ),
    message_always=True,
)
_COSINE, _MAX_ABS = 0.99, 0.001
_EPSILON = 1e-8
_ROUNDINGS = 16  # of the largest number that is given: where an output cancels, its error is of that size
_SEED = 42  # of what mindstudio-probe draws, each tensor anew
_NAMES = {dtype: name for name, dtype in MINDSPORE_DTYPES.items()}


def drawn(stats: TensorStats) -> torch.Tensor:
    """The numbers that mindstudio-probe draws for a tensor of which statistics were captured."""
    import numpy as np

    dtype = dtype_of(stats.dtype)
    random = np.random.RandomState(_SEED)
    if dtype == torch.bool:
        return torch.from_numpy(np.asarray(random.rand(*stats.shape) > 0.5))
    ends = (stats.min, stats.max)
    if any(end is None or math.isnan(end) for end in ends):
        raise NotReplayable("the range of a tensor was not captured")
    widest = torch.finfo(dtype if dtype.is_floating_point else torch.float64).max
    low, high = (min(max(float(end), -widest), widest) for end in ends if end is not None)
    return torch.from_numpy(np.asarray(random.uniform(low, high, stats.shape))).to(dtype)


class MindSporeCalls:
    """Checks calls by name, one at a time; as ReplayedCalls does those of PyTorch."""

    def __init__(self, client: Client, source: Source, error_folder: Path | None = None) -> None:
        self._records = {
            record.full_name: record
            for record in client.records(source.run, step=source.step, rank=Rank.parse(source.rank))
            if record.kind == "api"
        }
        # What was saved is compared; else the calls run again.
        task = next(each.settings.task for each in client.runs() if each.run == source.run)
        self._runs = task != "tensor"
        if self._runs:
            mindspore_calls.python()
        self._loader = Loader(client, source.run, _SEED, draw=drawn)
        self._device = source.device
        self._error_folder = error_folder

    def __enter__(self) -> MindSporeCalls:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def chosen(self, choice: Choice) -> list[str]:
        """Mint.add.0 of each call that has a function in torch, in order."""
        names = (CallName.parse(name, MINDSPORE) for name in self._records)
        bases = dict.fromkeys(name.base for name in names if name is not None and is_like_torch(name))
        return [base for base in bases if base not in choice.done]

    def rows(self, name: str, choice: Choice) -> CallRows:
        statuses = {"forward": "", "backward": ""}
        messages, details = [], []
        for direction in statuses:
            if f"{name}.{direction}" not in self._records:
                continue
            try:
                found = list(self._compared(name, direction))
            except (NotReplayable, mindspore_calls.Refused) as reason:
                statuses[direction] = SKIP
                messages.append(str(reason))
                continue
            except mindspore_calls.Crashed as reason:
                statuses[direction] = ERROR
                messages.append(str(reason))
                continue
            if found:
                statuses[direction] = ERROR if any(row[-2] == ERROR for row in found) else PASS
            details += found
            messages += [row[-1] for row in found if row[-1]]
        return CallRows(name, statuses["forward"], statuses["backward"], "; ".join(messages), details)

    def _compared(self, name: str, direction: str) -> Iterator[list[str]]:
        """The rows of the outputs, or of the gradients."""
        forward = self._records.get(f"{name}.forward")
        call = CallName.parse(f"{name}.forward", MINDSPORE)
        if forward is None or call is None:
            raise NotReplayable("its forward call was not captured")
        arguments = self._loader.arguments(forward)
        backward = self._records[f"{name}.backward"] if direction == "backward" else None
        grads = None if backward is None else self._grad_outputs(backward)
        golden = self._golden(call, arguments, grads)
        tested = self._tested(call, forward, backward, arguments, grads)
        given = [tensor for _, tensor in arguments.tensors] + [grad for grad in grads or [] if grad is not None]
        largest = max(map(_largest, given), default=0.0)
        bad = False
        for index, (place, tensor) in enumerate(tested):
            if place in golden:
                row = compared(f"{name}.{direction}.output.{index}", golden[place], tensor, largest)
                bad = bad or row[-2] == ERROR
                yield row
        if bad and self._error_folder is not None:
            outputs = [(f"output.{index}", tensor) for index, (_, tensor) in enumerate(tested)]
            _save(self._error_folder, f"{name}.{direction}", [*arguments.tensors, *outputs])

    def _golden(self, call: CallName, arguments: Arguments, grads: Any) -> dict[str, torch.Tensor]:
        function = reference_of(call)
        if function is None:
            raise NotReplayable(f"torch has no function {call.operation}")
        if call.prefix == "Functional" and (reason := reason_to_skip(call, arguments.args, arguments.kwargs)):
            raise NotReplayable(reason)
        try:
            on_cpu = arguments.mapped(replay.on("cpu"))
            found = replay.run(function, on_cpu, mutates=call.mutates, grad_outputs=grads, seed=_SEED)
        except Exception as error:  # whatever an operator raises
            raise NotReplayable(f"torch: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from None
        if grads is not None and found.no_backward:
            raise NotReplayable(found.no_backward)
        return dict(found.outputs if grads is None else found.gradients)

    def _tested(
        self, call: CallName, forward: Record, backward: Record | None, arguments: Arguments, grads: Any
    ) -> list[tuple[str, torch.Tensor]]:
        if self._runs:
            found = mindspore_calls.on(self._device).run(call, arguments, grads, _SEED)
            return found.outputs if backward is None else found.gradients
        if backward is None:
            saved = self._loader.outputs(forward)
            return [(place.removeprefix(f"{forward.full_name}."), _known(tensor)) for place, tensor in saved]
        places = [place for place, _ in arguments.tensors]
        by_name = dict(self._loader.outputs(backward))
        given = enumerate(backward.fields.get("output") or [])
        return [
            (places[i], _known(by_name.get(f"{backward.full_name}.output.{i}")))
            for i, grad in given
            if grad is not None and i < len(places)
        ]

    def _grad_outputs(self, backward: Record) -> list[torch.Tensor | None]:
        return [
            self._loader.tensor(backward, f"{backward.full_name}.input.{i}", item)
            if isinstance(item, TensorStats)
            else None
            for i, item in enumerate(backward.fields.get("input") or [])
        ]


def _known(tensor: torch.Tensor | None) -> torch.Tensor:
    if tensor is None:
        raise NotReplayable("its outputs were not saved; capture with task tensor")
    return tensor


def _save(folder: Path, call: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """As .npy files; numpy has no bfloat16."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for place, tensor in tensors:
        known = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        np.save(folder / f"{call}.{place}.npy", known.detach().numpy())


def compared(name: str, golden: torch.Tensor, tensor: torch.Tensor, given: float) -> list[str]:
    """A row of details. given: the largest number among what the call was given."""
    shape = tuple(golden.shape)
    start = [name, _NAMES[golden.dtype], _NAMES[tensor.dtype], str(shape)]
    if golden.shape != tensor.shape:
        return [*start, "", "", "", ERROR, f"the shape is {list(tensor.shape)}, that of torch's {list(shape)}"]
    cosine, max_abs, max_rel = _numbers(golden.double().flatten(), tensor.double().flatten())
    faults = []
    if not cosine > _COSINE:
        faults.append(f"cosine: {cosine:.6g}, limit {_COSINE:g}")
    if not max_abs < (limit := _limit(golden, given)):
        faults.append(f"max_abs: {max_abs:.6g}, limit {limit:.6g}")
    status = ERROR if faults else PASS
    return [*start, repr(cosine), repr(max_abs), repr(max_rel), status, "; ".join(faults)]


def _numbers(golden: torch.Tensor, tensor: torch.Tensor) -> tuple[float, float, float]:
    if golden.numel() == 0:
        return 1.0, 0.0, 0.0
    norms = float(torch.linalg.vector_norm(golden) * torch.linalg.vector_norm(tensor))
    cosine = (_EPSILON + float(golden @ tensor)) / (_EPSILON + norms)
    errors = (golden - tensor).abs()
    sizes = torch.where(golden == 0, _EPSILON, golden.abs())
    return cosine, float(errors.max()), float((errors / sizes).max())


def _limit(golden: torch.Tensor, given: float) -> float:
    """mindstudio-probe's is 0.001, whatever the size of the numbers; small ones are held to a thousandth of theirs."""
    largest = _largest(golden)
    if largest == 0 or not golden.is_floating_point():
        return _MAX_ABS
    return min(_MAX_ABS, max(_MAX_ABS * largest, _ROUNDINGS * torch.finfo(golden.dtype).eps * given))


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.double().abs().max()) if tensor.numel() else 0.0

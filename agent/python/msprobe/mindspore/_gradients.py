"""Where gradients pass: what goes into a recorded call and what comes out of it stands behind an identity operator.

HookBackward of MindSpore is that operator: it gives the tensors that it gets, in the same memory, and calls back with
their gradients. It adds nothing to them, so a run has the same bits with and without it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

import mindspore
from mindspore import Tensor, nn, ops

from msprobe._common import log
from msprobe._common.contained import contained

# What mindstudio-probe's hooks are put on as well.
_DIFFERENTIABLE = frozenset(
    (
        mindspore.float16,
        mindspore.float32,
        mindspore.float64,
        mindspore.bfloat16,
        mindspore.complex64,
        mindspore.complex128,
    )
)


def graph_api() -> Any:
    """MindSpore's module of compiled and eager execution, where this version has it."""
    try:
        return importlib.import_module("mindspore.graph.api")  # from 2.9 on
    except ImportError:
        return importlib.import_module("mindspore.common.api")


# Says whether gradients are being recorded; None: this version does not say it here.
_EXECUTOR = getattr(graph_api(), "_pynative_executor", None)


def are_recorded() -> bool:
    """Whether this call is inside a function whose gradients will be asked for."""
    return _EXECUTOR is None or bool(_EXECUTOR.requires_grad())


def has_gradient(value: Any) -> bool:
    """Whether one may come for this value; which ones do is known in the backward pass alone."""
    return isinstance(value, Tensor) and bool(getattr(value, "_requires_grad", True)) and value.dtype in _DIFFERENTIABLE


def behind(tensor: Any, told: Callable[[Any], None]) -> Any:
    """The same tensor, whose gradient is told once it has come."""

    def tell(gradients: Any) -> None:
        try:
            told(gradients[0] if isinstance(gradients, tuple) else gradients)
        except Exception as error:  # into the user's backward pass nothing of ours may go
            log.error(f"a gradient of a call was not recorded: {error}")

    return ops.HookBackward(tell)(tensor)


class Passage:
    """The gradients of one call, each behind an operator of its own: so none is computed that the program does not ask
    for.

    Those of the results come first. Those of the arguments follow, and some may never come: then `finish` ends the
    record with what there is.
    """

    def __init__(self, call: Any, by_arrival: bool, unfinished: dict[Passage, None]) -> None:
        """by_arrival: gradients stand in the order in which they come, and no null among them.
        unfinished: where a passage stands while it waits for gradients, behind those whose first came before its."""
        self._call, self._by_arrival, self._unfinished = call, by_arrival, unfinished
        self._inputs = self._outputs = 0  # tensors
        self._hooked_inputs: set[int] = set()
        self._behind: list[tuple[Tensor, int, Tensor]] = []  # arguments, where they lie, and what is given instead
        self._hooked_outputs: set[int] = set()
        self._forget()

    def enter(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call with."""
        self._inputs = 0
        self._hooked_inputs.clear()
        self._behind.clear()
        given = list(arguments)
        for index, value in enumerate(arguments):
            if isinstance(value, Tensor):
                if has_gradient(value):
                    given[index] = behind(value, functools.partial(self._tell_input, self._inputs))
                    self._behind.append((value, value.data_ptr(), given[index]))
                    self._hooked_inputs.add(self._inputs)
                self._inputs += 1
        if not any(isinstance(value, Tensor) and value.dtype in _DIFFERENTIABLE for value in arguments):
            self._inputs = 0
        return tuple(given) if self._hooked_inputs else arguments

    def leave(self, result: Any) -> Any:
        """The call has ended. The result to hand on."""
        self._hand_back()
        self._outputs = 0
        self._hooked_outputs.clear()
        given = list(result) if isinstance(result, tuple) else [result]
        for index, value in enumerate(given):
            if isinstance(value, Tensor):
                if has_gradient(value):
                    given[index] = behind(value, functools.partial(self._tell_output, self._outputs))
                    self._hooked_outputs.add(self._outputs)
                self._outputs += 1
        if not self._hooked_outputs:
            return result
        if not isinstance(result, tuple):
            return given[0]
        return type(result)._make(given) if hasattr(result, "_make") else type(result)(given)

    def _hand_back(self) -> None:
        """x[0] = 1 puts another tensor into the object x: what the call put into ours, the program's own gets too."""
        for argument, place, given in self._behind:
            if given.data_ptr() != place == argument.data_ptr():
                argument.assign_value(given)
        self._behind.clear()

    def finish(self) -> None:
        """No further gradient comes in this pass."""
        if not self._begun:
            self._begin()
        if self._begun:
            self._end()

    def _tell_output(self, place: int, gradient: Any) -> None:
        if self._begun:  # another pass over the same call
            self.finish()
        self._arrived_outputs[place] = self._call.read_gradient(gradient)
        self._unfinished.setdefault(self)
        if len(self._arrived_outputs) == len(self._hooked_outputs):
            self._begin()

    def _tell_input(self, place: int, gradient: Any) -> None:
        if self not in self._unfinished:
            if self._hooked_outputs:
                return  # nobody asked for those of the results
            self._unfinished.setdefault(self)  # the results are in a list or dict: a null, as mindstudio-probe has it
        if not self._begun:
            self._begin()
        self._arrived_inputs[place] = self._call.read_gradient(gradient)
        if len(self._arrived_inputs) == len(self._hooked_inputs):
            self._end()

    def _begin(self) -> None:
        self._begun = True
        self._call.begin_backward(self._shown(self._arrived_outputs, self._outputs) or (None,))
        if not self._hooked_inputs:
            self._end()

    def _end(self) -> None:
        # As mindstudio-probe shows a call whose arguments need no gradient: one null, however many they are.
        count = self._inputs if self._arrived_inputs else min(self._inputs, 1)
        self._call.end_backward(self._shown(self._arrived_inputs, count))
        self._forget()

    def _shown(self, arrived: dict[int, Any], count: int) -> tuple[Any, ...]:
        return tuple(arrived.values() if self._by_arrival else map(arrived.get, range(count)))

    def _forget(self) -> None:
        self._begun = False
        self._arrived_inputs: dict[int, Any] = {}  # by place, in the order of arrival
        self._arrived_outputs: dict[int, Any] = {}
        self._unfinished.pop(self, None)


class CellCalls:
    """The gradients of cells' calls, each call a Passage."""

    def __init__(self, call_of: Callable[[str, nn.Cell], Any]) -> None:
        """call_of: the name of a cell and the cell, to what the gradients of the call that begins are told; None: they
        are not asked for."""
        self._call_of = call_of
        self._entered: dict[int, list[Passage | None]] = {}  # of calls under way, by the identity of their cell
        self._unfinished: dict[Passage, None] = {}

    def hook(self, name: str, cell: nn.Cell) -> Iterable[Any]:
        """The handles of its hooks. Those behind them get the tensors that it hands on."""
        before = contained("a cell", lambda *given: self._enter(name, *given))
        yield cell.register_forward_pre_hook(before, with_kwargs=True)
        yield cell.register_forward_hook(contained("a cell", self._leave))

    def finish(self) -> None:
        """No further gradients of this step come."""
        for passage in list(self._unfinished):
            passage.finish()
        self._unfinished.clear()
        self._entered.clear()  # calls that raised

    def _enter(self, name: str, cell: nn.Cell, args: Any, kwargs: Any) -> Any:
        """What the call shall get: its gradients are told."""
        call = self._call_of(name, cell) if are_recorded() else None
        passage = None if call is None else Passage(call, False, self._unfinished)
        self._entered.setdefault(id(cell), []).append(passage)
        return None if passage is None else (passage.enter(args), kwargs)

    def _leave(self, cell: nn.Cell, _args: Any, output: Any) -> Any:
        entered = self._entered.get(id(cell))
        passage = entered.pop() if entered else None
        return None if passage is None else passage.leave(output)


class BackwardPasses:
    """The gradients that backward passes give parameters, before anybody adds them up."""

    def __init__(self, told: Callable[[str, Any, Tensor, int], None]) -> None:
        """told: the name of a parameter, it, the gradient, and how many came before since the last step."""
        self._told = contained("a parameter", told)
        self._counts: dict[str, int] = {}

    def hook(self, name: str, parameter: Any) -> Any:
        """The handle of its hook."""

        def after(gradient: Tensor) -> Tensor:
            count = self._counts.get(name, 0)
            self._counts[name] = count + 1
            self._told(name, parameter, gradient, count)
            return gradient

        return parameter.register_hook(after)

    def end_step(self, names: Iterable[str]) -> None:
        """names: of the parameters that have stepped."""
        for name in names:
            self._counts.pop(name, None)

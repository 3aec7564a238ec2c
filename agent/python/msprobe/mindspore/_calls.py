"""Records calls of functions and cells around the calls themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msprobe import _mindspore
from msprobe._common import log
from msprobe.mindspore._gradients import Passage, are_recorded
from msprobe.mindspore._program_error import raise_program_error, unless_it_fails

Function = Callable[..., Any]
_IN_PLACE = "__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __setitem__".split()


@dataclass(frozen=True)
class StagedCall:
    """A call that is being recorded, as a stage gets it."""

    name: str  # "Mint.log.0.forward"
    step: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    passing: tuple[Any, ...]  # the arguments, behind what reads their gradients
    function: Function
    changes_arguments: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Calls:
    """What is recorded now. Calls go through, whatever fails on our side.

    `agent` is set while something is captured. Threads: any, as far as the agent is.
    """

    def __init__(self, in_step: Callable[[], bool]) -> None:
        """in_step: whether a step has been started and has not ended."""
        self.agent: Any = None
        self._in_step = in_step
        self.stage: Callable[[StagedCall], Any] | None = None  # calls that it touches go through
        self._cells: dict[int, _Cell] = {}  # by id; each keeps its cell
        self._primitives: dict[int, tuple[Any, Any]] = {}  # by id: the primitive and its Api
        self._watched: dict[tuple[int, str], Any] = {}  # parameter and cell: the handle of its hook
        self._frozen: dict[tuple[int, str], tuple[_Cell, str, Any]] = {}  # needed no gradient when asked last
        self._unfinished: dict[Passage, None] = {}

    # What is known of the models.

    def add_cell(self, cell: Any, name: str, is_root: bool) -> None:
        """name: "Cell.net.conv1.Conv2d"; empty: its calls are no records."""
        self._cells[id(cell)] = _Cell(cell, name, is_root)

    def add_primitive(self, primitive: Any, name: str) -> bool:
        """name: "Primitive.conv2d.Conv2D". False: it is known by another name."""
        if id(primitive) in self._primitives:
            return False
        self._primitives[id(primitive)] = (primitive, api_of(name))
        return True

    def forget_models(self) -> None:
        self._cells, self._primitives = {}, {}

    def release_parameters(self) -> None:
        """Nothing of ours stays on a parameter."""
        self._frozen.clear()
        watched, self._watched = self._watched, {}
        for handle in watched.values():
            if hasattr(handle, "remove"):
                handle.remove()

    def look_at_frozen(self) -> None:
        """Watches the gradients of parameters that need some by now.

        To be called before the program's operators are under way: MindSpore says it when all of them are done.
        """
        frozen, self._frozen = self._frozen, {}
        for known, name, parameter in frozen.values():
            self._watch(known, {name: parameter})

    def finish(self) -> None:
        """No further gradients of this step come."""
        for passage in list(self._unfinished):
            passage.finish()
        self._unfinished.clear()

    # Replacements of functions.

    def recorded(self, function: Function, api: Any) -> Function:
        """A function that runs this one, as a call of the API."""
        name = api.name.rpartition(".")[2]
        in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            agent = self.agent
            if agent is None or not agent.wants():
                return function(*args, **kwargs)
            passes = not in_place and are_recorded()
            call = agent.begin_api(api, args, kwargs, passes)
            return self._run(function, call, args, kwargs, passes=passes, in_place=in_place)

        return recorded

    def recorded_cell(self, original: Function) -> Function:
        """In place of Cell.__call__."""

        @functools.wraps(original)
        def recorded(cell: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._cells.get(id(cell))
            agent = self.agent
            if known is None or agent is None or not agent.watching():
                return original(cell, *args, **kwargs)
            if known.is_root:
                agent.begin_pass()
            call = agent.begin_cell(known.native, args, kwargs) if known.name else None
            if call is None:
                return original(cell, *args, **kwargs)
            run = functools.partial(original, cell)
            return self._run(run, call, args, kwargs, known=known, passes=are_recorded())

        return recorded

    def recorded_primitive(self, original: Function) -> Function:
        """In place of the __call__ of a class of primitives."""

        @functools.wraps(original)
        def recorded(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._primitives.get(id(primitive))
            agent = self.agent
            if known is None or agent is None or not agent.wants():
                return original(primitive, *args, **kwargs)
            passes = are_recorded()
            call = agent.begin_api(known[1], args, kwargs, passes)
            run = functools.partial(original, primitive)
            return self._run(run, call, args, kwargs, passes=passes, by_arrival=True)

        return recorded

    def _run(
        self,
        function: Function,
        call: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        passes: bool,
        known: _Cell | None = None,
        by_arrival: bool = False,
        in_place: bool = False,
    ) -> Any:
        """passes: gradients of the call may come. in_place: it changes its first argument."""
        passage = Passage(call, by_arrival, self._unfinished) if passes and not call.left_out else None
        try:
            given = args if passage is None else unless_it_fails(passage.enter, args)
            if self.stage is not None and call.touched:
                result = self.stage(StagedCall(call.name, call.step, args, kwargs, given, function, in_place))
            else:
                result = function(*given, **kwargs)
        except BaseException:
            call.raised()
            raise_program_error()
            raise
        parameters = None if known is None or call.left_out else known.parameters()
        call.end(result, parameters)
        if passage is not None:
            if known is not None and parameters:
                unless_it_fails(functools.partial(self._watch, known), parameters)
            result = unless_it_fails(passage.leave, result)
        raise_program_error()
        return result

    def _watch(self, known: _Cell, parameters: dict[str, Any]) -> None:
        """Gradients of the cell's own parameters are records, from the first call on."""
        for name, parameter in parameters.items():
            key = (id(parameter), known.name)
            if key in self._watched or key in self._frozen:
                continue
            if parameter.requires_grad:  # waits for all that MindSpore has under way
                self._watched[key] = parameter.register_hook(functools.partial(self._tell, known.native, name))
            else:
                self._frozen[key] = known, name, parameter  # held, so that its id stays its own

    def _tell(self, cell: Any, parameter: str, gradient: Any) -> Any:
        try:
            if self.agent is not None and self._in_step():
                self.agent.parameter_gradient(cell, parameter, gradient)
        except Exception as error:  # into the user's backward pass nothing of ours may go
            log.error(f"the gradient of {parameter} was not recorded: {error}")
        return gradient


class _Cell:
    """A cell that is known, and the name of its records."""

    def __init__(self, cell: Any, name: str, is_root: bool) -> None:
        self.cell, self.name, self.is_root = cell, name, is_root
        self.native = _mindspore.CellName(name)

    def parameters(self) -> dict[str, Any]:
        """Its own, by their last names."""
        own = self.cell.parameters_and_names(expand=False)
        return {name.rpartition(".")[2]: parameter for name, parameter in own}


@functools.cache  # kept for good: records of calls that are under way point at it
def api_of(name: str) -> Any:
    return _mindspore.make_api(name)

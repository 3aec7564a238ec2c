"""What has been traced: every call of a module or operator in the graphs, and the probe of each tensor in it."""

from __future__ import annotations

import itertools
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from msprobe import _agent
from msprobe._common import log
from msprobe._common.opening import PACKAGE

Field = tuple[Any, ...]
_NOT_USERS = (str(PACKAGE), str(Path(__file__).parent.parent))  # ours, linked or not
_plans: dict[int, GraphPlan] = {}  # traced code names its plan by number
_numbers = itertools.count(1)


class Call:
    """One call as it was traced last. Its name, count and place stay what they were when it was traced first."""

    def __init__(self, name: str, is_module: bool, count: int, parent: Call | None, frames: list[Any]) -> None:
        self.name, self.is_module, self.count, self.parent = name, is_module, count, parent
        direction = f"forward.{count}" if is_module else f"{count}.forward"
        self.full_name = f"{name}.{direction}"
        self.fields: dict[str, list[Field]] = {"enter": [], "exit": []}
        self.changed = True
        self.record = _agent.GraphRecord(
            name=name,
            is_module=is_module,
            count=count,
            parent="" if parent is None else parent.full_name,
            frames=frames,
        )

    def finished(self) -> Any:
        if self.changed:
            self.record.set_enter(self.fields["enter"])
            self.record.set_exit(self.fields["exit"])
            self.changed = False
        return self.record


class GraphPlan:
    """Calls and probes of one dumper. Filled while graphs are traced (and, where nothing is compiled, by each call).

    Calls are counted from the beginning of each forward pass of the model, so that a graph that is traced again, or in
    another shape, has the names and the probes that it had. Not thread-safe: torch traces one graph at a time.
    """

    def __init__(self, with_stacks: bool, keeps_bytes: Callable[[str], bool]) -> None:
        self.number = next(_numbers)
        self.tables: dict[torch.device, Any] = {}
        self.slots: dict[torch.device, torch.Tensor] = {}  # read by traced code: the same tensors for good
        self.calls: dict[str, Call] = {}
        self.events: list[tuple[Call, bool]] = []  # (call, whether it begins), in the order of the records
        self.owners: dict[tuple[int, int], tuple[Call, str]] = {}  # (table, probe) -> where it was declared
        self.on = True
        self._with_stacks, self._keeps_bytes = with_stacks, keeps_bytes
        self._indexes: dict[tuple[torch.device, str, str], int] = {}
        self._used: dict[torch.device, int] = {}
        self._counts: dict[str, int] = {}
        self._open: list[Call] = []
        self._attempts: dict[Any, tuple[int, dict[str, int], int]] = {}  # by compilation: attempt, counts, depth
        self._touched: dict[torch.device, Any] = {}  # the trace that last had the slots
        self._operators: dict[str, int] = {}  # by name: how many the graphs so far hold
        self._first_operators: dict[Any, dict[str, int]] = {}  # by graph: the same, of the graphs before it
        self._full = False
        _plans[self.number] = self

    def add_device(self, device: torch.device, table: Any) -> None:
        self.tables[device] = table
        self.slots[device] = table.slots
        torch._dynamo.mark_static_address(self.slots[device])
        self._used[device] = 0

    # Called while tracing, through the functions below.

    def begin_pass(self) -> None:
        self._counts.clear()
        self._open.clear()
        self._attempts.clear()

    def enter(self, name: str, is_module: bool = True) -> Call:
        self._notice_attempt()
        parent = self._open[-1] if self._open else None
        call = self.call(name, is_module, self.next_count(name), parent, _frames() if self._with_stacks else [])
        self._open.append(call)
        return call

    def leave(self, full_name: str) -> None:
        while self._open and self._open.pop().full_name != full_name:
            pass

    def next_count(self, name: str) -> int:
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return count

    def call(
        self,
        name: str,
        is_module: bool,
        count: int,
        parent: Call | None,
        frames: list[Any],
        place: int | None = None,
    ) -> Call:
        """The call, emptied of its fields. place: of a new one among the events; None: inside its parent, last."""
        made = Call(name, is_module, count, parent, frames)
        known = self.calls.get(made.full_name)
        if known is not None:
            known.fields = {"enter": [], "exit": []}
            known.changed = True
            return known
        self.calls[made.full_name] = made
        at = self._place_in(parent) if place is None else place
        self.events[at:at] = [(made, True), (made, False)]
        return made

    def probe(self, call: Call, part: str, device: torch.device, requires_grad: bool) -> int:
        """The number of the probe for the next tensor there; -1: none, it stands without numbers."""
        if device not in self.tables:
            self.add(call, part, ("none",))
            return -1
        where = f"{part}.{len(call.fields[part])}"
        key = (device, call.full_name, where)
        index = self._indexes.get(key)
        table = self.tables[device]
        if index is None:
            index = self._used[device]
            if index >= table.probes:
                if not self._full:
                    log.warning(f"more than {table.probes} tensors are traced: those behind stand without numbers")
                self._full = True
                self.add(call, part, ("none",))
                return -1
            self._indexes[key] = index
            self._used[device] = index + 1
            self.owners[table.id, index] = (call, part)
            table.keep_bytes(index, self._keeps_bytes(call.full_name))
        self.add(call, part, ("probe", table, index, requires_grad))
        return index

    def touch(self, device: torch.device) -> bool:
        """Whether a graph that is being traced does not have the slots of a device yet. True once a trace."""
        trace = _trace()
        if trace is None or device not in self.tables or self._touched.get(device) == trace:
            return False
        self._touched[device] = trace
        return True

    def operator_counts(self) -> Callable[[str], int]:
        """The numbering of the operators of the graph that is being traced: each time the same one."""
        trace = _trace()
        graph = None if trace is None else getattr(trace.compile_id, "frame_id", None)
        is_new = graph not in self._first_operators
        counts = dict(self._first_operators.setdefault(graph, dict(self._operators)))

        def count(name: str) -> int:
            number = counts.get(name, 0)
            counts[name] = number + 1
            if is_new:
                self._operators[name] = number + 1
            return number

        return count

    def add(self, call: Call, part: str, field: Field) -> None:
        call.fields[part].append(field)
        call.changed = True

    def records(self) -> list[tuple[Any, bool]]:
        return [(call.finished(), begins) for call, begins in self.events]

    def _place_in(self, parent: Call | None) -> int:
        return len(self.events) if parent is None else self.events.index((parent, False))

    def _notice_attempt(self) -> None:
        """A compiler that begins to trace a graph anew traces its calls anew: they are the same ones."""
        trace = _trace()
        if trace is None:
            return
        known = self._attempts.get(trace.compile_id)
        if known is None:
            self._attempts[trace.compile_id] = (trace.attempt, dict(self._counts), len(self._open))
        elif known[0] != trace.attempt:
            self._attempts[trace.compile_id] = (trace.attempt, known[1], known[2])
            self._counts = dict(known[1])
            del self._open[known[2] :]


def _trace() -> Any:
    """Which attempt of which compilation is under way; None: nothing is traced."""
    guards = sys.modules.get("torch._guards")
    return guards.CompileContext.current_trace_id() if guards is not None else None


def _frames() -> list[tuple[str, int, str, str]]:
    """The user's frames, innermost first: of the code that is traced, where a compiler traces."""
    guards = sys.modules.get("torch._guards")
    tracing = guards.TracingContext.try_get() if guards is not None else None
    found = list(guards.TracingContext.extract_stack()) if tracing is not None and guards is not None else []
    found = (
        found
        or [
            traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_name, lookup_line=False)
            for frame, line in traceback.walk_stack(sys._getframe(2))
        ][::-1]
    )
    return frames_of(found)


def frames_of(summaries: Any) -> list[tuple[str, int, str, str]]:
    return [
        (frame.filename, frame.lineno or 0, frame.name, (frame.line or "") if frame.filename.startswith("<") else "")
        for frame in reversed(summaries)
        if not frame.filename.startswith(_NOT_USERS) and "/torch/_dynamo/" not in frame.filename
    ]


# What traced code calls. A compiler runs these while it traces, with constants, and traces none of it; where nothing is
# traced they run as they are. Whatever fails here costs a record, not the model.


def _constant(function: Callable[..., Any]) -> Callable[..., Any]:
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # what torch._dynamo.assume_constant_result sets
    return function


@_constant
def begin_pass(plan: int) -> bool:
    _plans[plan].begin_pass()
    return True


@_constant
def enter(plan: int, name: str) -> str:
    try:
        return _plans[plan].enter(name).full_name
    except Exception as error:
        log.warning(f"msprobe: {name} is not captured: {error}")
        return ""


@_constant
def leave(plan: int, call: str) -> bool:
    _plans[plan].leave(call)
    return True


@_constant
def probe_number(plan: int, call: str, part: str, device: str, requires_grad: bool) -> int:
    try:
        known = _plans[plan]
        return known.probe(known.calls[call], part, torch.device(device), requires_grad)
    except Exception as error:
        log.warning(f"msprobe: a tensor of {call} is not captured: {error}")
        return -1


@_constant
def touch(plan: int, device: str) -> bool:
    return _plans[plan].touch(torch.device(device))


@_constant
def field(plan: int, call: str, part: str, kind: str, value: str | bool | None = None) -> bool:
    known = _plans[plan]
    known.add(known.calls[call], part, (kind,) if value is None else (kind, value))
    return True


@_constant
def number(plan: int, call: str, part: str, kind: str, value: float) -> bool:
    known = _plans[plan]
    known.add(known.calls[call], part, (kind, value))
    return True


_INDEX = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\"|(\d+))\]")


def module_path(traced: str) -> str:
    """A compiler's name of a module (``L['self'].layers[0]._modules['a']``) with dots alone."""
    plain = _INDEX.sub(lambda match: "." + next(group for group in match.groups() if group is not None), traced)
    return re.sub(r"\.+", ".", plain.replace("._modules", "")).strip(".")

"""Which of MindSpore's functions are intercepted, and putting that in and back: another function at their attribute."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore
from mindspore import nn

from msprobe._common.swaps import AttributeSwap, Swap, read_names
from msprobe.mindspore._calls import Calls, api_of
from msprobe.mindspore._gradients import graph_api

_NAMES = Path(__file__).parent / "api_names.txt"


def is_compiled(cell: nn.Cell) -> bool:
    """Whether mindspore.jit compiles its construct."""
    return bool(getattr(cell.construct, "__wrapped_by_jit__", False))


class Interception:
    """Everything that is intercepted in this process, put in by install and back by restore. Threads: any."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.RLock()
        self._wanted: list[AttributeSwap] = []
        self._added: list[Swap] = []
        self._in: list[Swap] = []
        self._apis: list[AttributeSwap] | None = None
        self._cells: list[AttributeSwap] = []
        self._primitives: dict[type, AttributeSwap] = {}
        self._compilers: list[AttributeSwap] | None = None
        self._set_aside = 0
        self._with_cells = False

    def add_primitive_class(self, kind: type) -> None:
        if kind not in self._primitives:
            call = self._calls.recorded_primitive(kind.__call__)
            self._primitives[kind] = AttributeSwap(kind, "__call__", call)

    def install(self, with_apis: bool, with_cells: bool) -> None:
        with self._lock:
            self._with_cells = with_cells
            if not self._cells:
                self._cells = [AttributeSwap(nn.Cell, "__call__", self._calls.recorded_cell(nn.Cell.__call__))]
            if with_apis and self._apis is None:
                self._apis = list(self._listed())
            self._wanted = [*self._cells, *self._compiler_swaps()]
            if with_apis:
                self._wanted += [*(self._apis or []), *self._primitives.values()]
            self._put()

    def restore(self) -> None:
        """Puts every attribute back as it was."""
        with self._lock:
            self._wanted = []
            self._put()

    def add(self, swaps: list[Swap]) -> None:
        """They stay in, installed or restored, until they are removed."""
        with self._lock:
            self._added += swaps
            self._put()

    def remove(self, swaps: list[Swap]) -> None:
        with self._lock:
            self._added = [swap for swap in self._added if swap not in swaps]
            self._put()

    def after_fork(self) -> None:
        """In the child, whose other threads are gone with what they held."""
        self._lock = threading.RLock()
        self._set_aside = 0
        self.restore()

    @contextlib.contextmanager
    def set_aside(self) -> Iterator[None]:
        """Every attribute is as it was: a compiler reads the functions that it finds."""
        with self._lock:
            self._set_aside += 1
            self._put()
        try:
            yield
        finally:
            with self._lock:
                self._set_aside -= 1
                self._put()

    def swaps_of(self, owner: Any, name: str, full_name: str) -> list[Swap]:
        """Those by which calls of owner.name are recorded."""
        return [AttributeSwap(owner, name, self._calls.recorded(getattr(owner, name), api_of(full_name)))]

    def _put(self) -> None:
        for swap in reversed(self._in):
            swap.restore()
        self._in = [] if self._set_aside else [*self._wanted, *self._added]
        for swap in self._in:
            swap.install()

    def _listed(self) -> Iterator[AttributeSwap]:
        for heading, names in read_names(_NAMES.read_text(encoding="utf-8")).items():
            prefix, _, where = heading.partition(" ")
            try:
                owner = mindspore.Tensor if where == "mindspore.Tensor" else importlib.import_module(where)
            except ImportError:
                continue
            for name in names:
                function = getattr(owner, name, None)
                if callable(function) and not isinstance(function, type):
                    yield AttributeSwap(owner, name, self._calls.recorded(function, api_of(f"{prefix}.{name}")))

    def _compiler_swaps(self) -> list[AttributeSwap]:
        if self._compilers is None:
            self._compilers = list(self._jit_executors())
        return self._compilers

    def _jit_executors(self) -> Iterator[AttributeSwap]:
        """What runs a function that mindspore.jit has compiled, and compiles it at its first call."""
        for name in ("_JitExecutor", "_MindsporeFunctionExecutor"):
            kind = getattr(graph_api(), name, None)
            if isinstance(kind, type):
                yield AttributeSwap(kind, "__call__", self._compiled(kind.__call__))

    def _compiled(self, original: Any) -> Any:
        def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
            function = getattr(executor, "fn", None)
            name = getattr(function, "__name__", "") or "JitFunction"
            given_to = args[0] if args and isinstance(args[0], nn.Cell) else None
            if name == "construct" and given_to is not None and not self._with_cells:
                name = type(given_to).__name__

            def compiled(*given: Any, **named: Any) -> Any:
                with self.set_aside():
                    return original(executor, *given, **named)

            agent = self._calls.agent
            if name == "construct" or agent is None or not self._with_apis() or not agent.wants():
                return compiled(*args, **kwargs)
            return self._calls.recorded(compiled, api_of(f"Jit.{name}"))(*args, **kwargs)

        return run

    def _with_apis(self) -> bool:
        return self._apis is not None and any(swap in self._wanted for swap in self._apis[:1])

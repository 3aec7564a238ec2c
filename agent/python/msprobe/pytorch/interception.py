"""Which of torch's functions are intercepted, and putting that in and back.

C functions and methods are swapped in C++ (method_swap.h), Python functions by their code (msprobe._common.swaps).
Objects that go by two names get a stand-in at one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from msprobe import _agent
from msprobe._common import swaps
from msprobe._common.swaps import AttributeSwap, CodeSwap, Swap, copied, read_names, recorded
from msprobe.pytorch import _seen_by_compiler

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")

# Arguments of collectives that only receive: their content before the call says nothing.
_RECEIVERS: dict[str, list[int]] = {
    name: [0]
    for name in (
        "recv irecv all_gather scatter reduce_scatter _reduce_scatter_base _all_gather_base all_to_all_single "
        "all_to_all all_gather_into_tensor all_gather_single reduce_scatter_tensor reduce_scatter_single"
    ).split()
} | {"gather": [1]}

# Later than mindstudio-probe's lists are the names that FSDP2 calls from torch 2.13 on.
_UNLISTED_COMMUNICATION = ("barrier", "all_gather_single", "reduce_scatter_single")

swaps.on_replacement.append(_seen_by_compiler.note_replacement)


class Interception:
    """Everything that is intercepted in this process, prepared once, put in by install and back by restore.

    Threads: any. While somebody has it set aside, nothing is in.
    """

    def __init__(self) -> None:
        self._wanted = False  # between install and restore
        self._with_apis = False
        self._added: list[Swap] = []
        self._in: list[Swap] = []
        self._apis: list[Swap] = []
        self._modules: list[CodeSwap] = []
        self._readers: list[CodeSwap] = []
        self._made_of: list[Any] = []  # _apis: the functions
        self._apis_are_final = False
        self._recorded_api = functools.cache(lambda function, api: recorded(function, "api", api=api))
        self._prepared_method = _once(_agent.prepare_method)
        self._stand_in = _once(_agent.stand_in)
        self._operators: list[CodeSwap] = []  # of torch.ops
        self._namespaces: frozenset[str] = frozenset()
        self._unlisted: list[Swap] = []
        self._everything = False
        self._met_compiler = False
        self.set_phase: Callable[[str], None] = lambda phase: None
        self._lock = threading.RLock()
        self._set_aside: list[int] = []  # by calls of these threads

    def prepare(self) -> None:
        """Makes what the first install() with API calls takes its time for. Nothing is put in."""
        with self._lock:
            self._prepare_readers()
            self._prepare_modules()
            self._prepare_apis()

    def install(
        self, with_apis: bool | None = None, namespaces: Sequence[str] | None = None, everything: bool | None = None
    ) -> None:
        """with_apis: API calls too, not modules alone. namespaces: of torch.ops, whose operators are recorded.
        everything: operators of every namespace, and x[i]. None: as the last time."""
        with self._lock:
            if with_apis is not None:
                self._with_apis = with_apis
            if namespaces is not None and frozenset(namespaces) != self._namespaces:
                self._namespaces = frozenset(namespaces)
                self._operators = []
            if everything is not None and everything != self._everything:
                self._everything = everything
                self._operators = []
            self._wanted = True
            self._put()

    def restore(self) -> None:
        """Puts every function object back as it was."""
        with self._lock:
            self._wanted = False
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

    @contextlib.contextmanager
    def set_aside(self) -> Iterator[None]:
        """Every function object is as it was. What is installed or restored meanwhile holds from the end on."""
        with self._lock:
            self._set_aside.append(threading.get_ident())
            self._put()
        try:
            yield
        finally:
            with self._lock:
                self._set_aside.remove(threading.get_ident())
                self._put()

    def after_fork(self) -> None:
        """In the child, whose other threads are gone with what they held."""
        self._lock = threading.RLock()
        self._set_aside = [thread for thread in self._set_aside if thread == threading.get_ident()]
        self.restore()

    def _put(self) -> None:
        """Puts in what is to be in, and back what was."""
        _agent.restore_methods()
        for swap in self._in:
            swap.restore()
        self._in = []
        if self._set_aside or not (self._wanted or self._added):
            return
        self._in = [*self._prepare_readers(), *self._added]
        if self._wanted:
            self._in += self._prepare_modules()
        if self._wanted and self._with_apis:
            if not self._apis_are_final:
                self._apis_are_final = True
                self._prepare_apis()
            self._in += [*self._apis, *self._prepare_operators(), *self._prepare_unlisted()]
            _agent.install_methods()
        for swap in self._in:
            swap.install()

    def _prepare_modules(self) -> list[CodeSwap]:
        if not self._modules:
            self._modules = [
                recorded(torch.nn.Module._wrapped_call_impl, "module"),
                recorded(torch._tensor_str._str, "suppress"),
            ]
        return self._modules

    def _prepare_readers(self) -> list[CodeSwap]:
        """What reads the code that it is given; of the compiler, once torch.compile has been used, which imports it."""
        if not self._readers:
            self._readers = [self._uncaptured(torch.jit.script), self._uncaptured(torch.compile)]
        if not self._met_compiler and (convert_frame := sys.modules.get("torch._dynamo.convert_frame")) is not None:
            self._met_compiler = True
            self._readers.append(self._uncaptured(convert_frame._compile))
            _seen_by_compiler.meet()
        return self._readers

    def _uncaptured(self, function: types.FunctionType) -> CodeSwap:
        """Runs with everything set aside."""

        def intercept(twin: types.FunctionType) -> Callable[..., Any]:
            def uncaptured(*args: Any, **kwargs: Any) -> Any:
                with self.set_aside():
                    return twin(*args, **kwargs)

            return uncaptured

        return CodeSwap(function, intercept)

    def _optimizer_steps(self) -> list[CodeSwap]:
        """API calls of an optimizer have it as parent. Each step stands in a range of the profiler's; a hook on all
        optimizers would be seen by torch.compile, which guards on there being none."""

        def intercept(twin: types.FunctionType, phase: str) -> Callable[..., Any]:
            def tell(span: Any, *args: Any) -> Any:
                if span.name.startswith("Optimizer.step#"):
                    self.set_phase(phase)
                return twin(span, *args)

            return tell

        span = torch.autograd.profiler.record_function
        return [
            CodeSwap(span.__enter__, functools.partial(intercept, phase="optimizer")),
            CodeSwap(span.__exit__, functools.partial(intercept, phase="")),
        ]

    def _prepare_operators(self) -> list[CodeSwap]:
        """The two ways into an operator: torch.ops.ns.name(...) and torch.ops.ns.name.overload(...)."""
        namespaces, everything = self._namespaces, self._everything
        if not self._operators and (namespaces or everything):

            def describe(op: Any) -> Any:
                qualified = op._name if isinstance(op, torch._ops.OpOverload) else op._qualified_op_name
                namespace, _, name = qualified.partition("::")
                wanted = everything or namespace in namespaces
                return make_api(f"{namespace}.{name.partition('.')[0]}", "FOCUS") if wanted else None

            self._operators = [
                recorded(kind.__call__, "operator", operator_api=describe)
                for kind in (torch._ops.OpOverloadPacket, torch._ops.OpOverload)
            ]
        return self._operators

    def _prepare_unlisted(self) -> list[Swap]:
        """What only "capture": "all" records: x[i], and calls between ranks that mindstudio-probe does not name."""
        if not self._everything:
            return []
        if not self._unlisted:
            api = make_api("Tensor.__getitem__", "FOCUS")
            index = _agent.intercept(torch.Tensor.__getitem__, "api", api=api)
            self._unlisted = [AttributeSwap(torch.Tensor, "__getitem__", index)]
            for name in _UNLISTED_COMMUNICATION:
                if isinstance(function := getattr(torch.distributed, name, None), types.FunctionType):
                    self._unlisted.append(recorded(function, "api", api=make_api(f"Distributed.{name}", "CORE")))
        return self._unlisted

    def _prepare_apis(self) -> None:
        listed = list(functions_of(listed_names()))
        made_of = [*(function for *_, function in listed), *vars(torch.Tensor).values()]
        if len(made_of) == len(self._made_of) and all(map(operator.is_, made_of, self._made_of)):
            return
        self._made_of = made_of
        self._apis = []
        seen: dict[int, str] = {}
        for prefix, (owner, last), function, api in described(listed):
            if id(function) in seen and seen[id(function)] == prefix:
                continue
            if id(function) in seen:
                stand_in = self._stand_in(function, api)
                if stand_in is not None and prefix == "Torch":
                    self._apis.append(AttributeSwap(owner, last, stand_in))
                continue
            if isinstance(function, types.FunctionType):
                self._apis.append(self._recorded_api(function, api))
            elif isinstance(
                function, types.WrapperDescriptorType
            ):  # a slot, such as __setitem__, has no definition to swap
                self._apis.append(AttributeSwap(owner, last, _agent.intercept(function, "api", api=api)))
            elif not self._prepared_method(function, api):
                continue
            seen[id(function)] = prefix
        self._apis += self._unlisted_names(set(listed_names()["Tensor torch.Tensor"]), seen)
        if (work := getattr(torch.distributed, "Work", None)) is not None:
            self._apis.append(AttributeSwap(work, "wait", _agent.intercept(work.wait, "wait")))
        self._apis += self._optimizer_steps()
        clip = torch.nn.utils
        for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"):
            function = getattr(clip, name, None)
            if isinstance(function, types.FunctionType):
                self._apis.append(recorded(function, "phase", phase="clip_grad"))

    @staticmethod
    def _unlisted_names(listed: set[str], seen: dict[int, str]) -> list[Swap]:
        """Plain calls for names of Tensor that are not listed but are the same object as one that is (``__neg__``)."""
        plain: list[Swap] = []
        for name, function in list(vars(torch.Tensor).items()):
            if name in listed or seen.get(id(function)) != "Tensor":
                continue
            if isinstance(function, types.FunctionType):
                plain.append(AttributeSwap(torch.Tensor, name, copied(function)))
            elif (method := _agent.plain_method(function)) is not None:
                plain.append(AttributeSwap(torch.Tensor, name, method))
        return plain


def _once(make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """What `make` gave for a function and a description when it was first asked: it must not be asked twice, and a
    function need not have a hash."""
    made: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

    def of(function: Any, api: Any) -> Any:
        key = id(function), id(api)
        if key not in made:
            made[key] = make(function, api), function, api
        return made[key][0]

    return of


@functools.cache
def listed_names() -> dict[str, list[str]]:
    """The sections of api_names.txt."""
    return read_names((Path(__file__).parent / "api_names.txt").read_text(encoding="utf-8"))


def described(listed: list[tuple[str, Any, str, Any]]) -> Iterator[tuple[str, tuple[Any, str], Any, Any]]:
    """(prefix, (owner, attribute), function, its description) of what functions_of found of the listed names."""
    risks = risk_levels(listed_names())
    for prefix, owner, name, function in listed:
        last = name.rsplit(".", 1)[-1]
        yield prefix, (owner, last), function, make_api(f"{prefix}.{last}", risks.get(name, risks.get(last, "FOCUS")))


def functions_of(sections: dict[str, list[str]]) -> Iterator[tuple[str, Any, str, Any]]:
    """(prefix, owner, name, object) of what exists here. Functional comes before Torch: modules call it so."""
    for heading, names in sections.items():
        prefix, _, where = heading.partition(" ")
        if prefix == "risk":
            continue
        try:
            owner = torch.Tensor if where == "torch.Tensor" else importlib.import_module(where)
        except ImportError:
            owner = getattr(torch, where.split(".")[-1], None) if where.startswith("torch.") else None
        for name in names if owner is not None else ():
            holder: Any = owner
            for part in name.split(".")[:-1]:
                holder = getattr(holder, part, None)
            function = getattr(holder, name.rsplit(".", 1)[-1], None)
            if function is not None:
                yield prefix, holder, name, function


def risk_levels(sections: dict[str, list[str]]) -> dict[str, str]:
    """Name -> level of what is not FOCUS. Communication and fused operators are CORE, as in mindstudio-probe."""
    levels = {name: level for level in ("CORE", "LOW") for name in sections[f"risk {level}"]}
    for heading, names in sections.items():
        if heading.split()[0] in ("Distributed", "NPU", "MindSpeed"):
            levels |= {name.rsplit(".", 1)[-1]: "CORE" for name in names}
    return levels


@functools.cache  # kept for good: hooks on graphs refer to it after the function is no longer intercepted
def make_api(full_name: str, risk: str) -> Any:
    """The description of one function for C++; full_name is "Functional.linear"."""
    prefix, _, name = full_name.rpartition(".")
    distributed = prefix == "Distributed"
    return _agent.make_api(
        full_name,
        risk,
        is_dropout=prefix == "Functional" and name in _DROPOUTS,
        is_distributed=distributed,
        ignored_inputs=_RECEIVERS.get(name, []) if distributed else [],
        ignored_outputs=[0]
        if distributed and name == "isend"
        else [4, 5]
        if full_name == "NPU.npu_fusion_attention"
        else [],
        ignored_keyword="tensor" if distributed and name == "irecv" else "",
    )

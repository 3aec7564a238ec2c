"""Which functions are intercepted, and putting that in and back.

C functions and methods are swapped in C++ (method_swap.h). A Python function keeps its identity too: it is given other
code, whose one constant is our callable; that callable runs a twin which has the old code. Objects that go by two names
get a stand-in at one.
"""

import functools
import importlib
import inspect
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from msprobe import _agent

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")

# Arguments of collectives that only receive: their content before the call says nothing.
_RECEIVERS: dict[str, list[int]] = {
    name: [0]
    for name in (
        "recv irecv all_gather scatter reduce_scatter _reduce_scatter_base _all_gather_base all_to_all_single "
        "all_to_all all_gather_into_tensor reduce_scatter_tensor"
    ).split()
} | {"gather": [1]}

with warnings.catch_warnings():
    warnings.simplefilter("ignore", SyntaxWarning)
    _SHIM = compile("def shim(*args, **kwargs): return 'callable'(*args, **kwargs)", "<msprobe>", "exec").co_consts[0]


def read_names(text: str) -> dict[str, list[str]]:
    """The sections of api_names.txt: heading -> names."""
    sections: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"\[(.+)\]", line):
            heading = match[1]
            sections[heading] = []
        elif line and not line.startswith("#"):
            sections[heading] += line.split()
    return sections


class CodeSwap:
    """Other code for one Python function."""

    def __init__(self, function: types.FunctionType, kind: str, **options: Any) -> None:
        self.function = function
        self.original = function.__code__
        self.twin = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self.twin.__kwdefaults__ = function.__kwdefaults__
        self.twin.__qualname__ = function.__qualname__
        self.interceptor = _agent.intercept(self.twin, kind, **options)
        consts = tuple(self.interceptor if const == "callable" else const for const in _SHIM.co_consts)
        self.shim = _SHIM.replace(
            co_consts=consts,
            co_freevars=function.__code__.co_freevars,
            co_name=function.__code__.co_name,
            co_filename=function.__code__.co_filename,  # inspect.getsource shows the function's own
            co_firstlineno=function.__code__.co_firstlineno,
        )
        _agent.hide_code(self.shim)

        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None

    def install(self) -> None:
        self.function.__code__ = self.shim
        if self.signature is not None:
            self.function.__signature__ = self.signature  # type: ignore[attr-defined]

    def restore(self) -> None:
        self.function.__code__ = self.original
        self.function.__dict__.pop("__signature__", None)


class AttributeSwap:
    """Another object at one attribute, where the object itself cannot carry the interception."""

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self.owner, self.name = owner, name
        self.inherited = name not in vars(owner)
        # As it stands there: a class holds functions that what is got from it no longer binds.
        self.original, self.replacement = vars(owner).get(name), replacement

    def install(self) -> None:
        setattr(self.owner, self.name, self.replacement)

    def restore(self) -> None:
        if self.inherited:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)


class Uncaptured(CodeSwap):
    """Runs a function with everything put back: torch.jit.script and torch.compile read the code they are given."""

    def __init__(self, function: types.FunctionType, interception: "Interception") -> None:
        super().__init__(function, "suppress")
        twin = self.twin

        def uncaptured(*args: Any, **kwargs: Any) -> Any:
            was_installed = interception.installed
            interception.restore()
            try:
                return twin(*args, **kwargs)
            finally:
                if was_installed:
                    interception.install()

        consts = tuple(uncaptured if const is self.interceptor else const for const in self.shim.co_consts)
        self.shim = self.shim.replace(co_consts=consts)
        _agent.hide_code(self.shim)


class Interception:
    """Everything that is intercepted in this process, prepared once, put in by install and back by restore."""

    def __init__(self) -> None:
        self.installed = False
        self._with_apis = False
        self._apis: list[CodeSwap | AttributeSwap] = []
        self._modules: list[CodeSwap] = []
        self._put_in: list[CodeSwap | AttributeSwap] = []
        self._prepared_apis = False
        self._operators: list[CodeSwap] = []  # of torch.ops
        self._namespaces: frozenset[str] = frozenset()
        self._indexing: list[AttributeSwap] = []
        self._everything = False
        self._traces_uncaptured = False  # known once torch.compile has been used, which imports its tracer
        self._optimizer_hooks: list[Any] = []
        self.set_phase: Callable[[str], None] = lambda phase: None

    def install(
        self, with_apis: bool | None = None, namespaces: Sequence[str] | None = None, everything: bool | None = None
    ) -> None:
        """with_apis: API calls too, not modules alone. namespaces: of torch.ops, whose operators are recorded.
        everything: operators of every namespace, and x[i]. None: as the last time."""
        if with_apis is not None:
            self._with_apis = with_apis
        if namespaces is not None and frozenset(namespaces) != self._namespaces:
            self._namespaces = frozenset(namespaces)
            self._operators = []
        if everything is not None and everything != self._everything:
            self._everything = everything
            self._operators = []
        if self.installed:
            self.restore()
        self.installed = True
        if not self._modules:
            self._modules = [
                CodeSwap(torch.nn.Module._wrapped_call_impl, "module"),
                CodeSwap(torch._tensor_str._str, "suppress"),
                Uncaptured(torch.jit.script, self),
                Uncaptured(torch.compile, self),
            ]
        if (
            not self._traces_uncaptured
            and (convert_frame := sys.modules.get("torch._dynamo.convert_frame")) is not None
        ):
            self._traces_uncaptured = True
            self._modules.append(Uncaptured(convert_frame._compile, self))
        if self._with_apis:
            self._prepare_apis()
            _agent.install_methods()
            self._put_in += [*self._apis, *self._prepare_operators(), *self._prepare_indexing()]
            self._hook_optimizers()
        self._put_in += self._modules
        for swap in self._put_in:
            swap.install()

    def restore(self) -> None:
        """Puts every function object back as it was."""
        if not self.installed:
            return
        self.installed = False
        _agent.restore_methods()
        for swap in self._put_in:
            swap.restore()
        self._put_in.clear()
        for handle in self._optimizer_hooks:
            handle.remove()
        self._optimizer_hooks.clear()

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
                CodeSwap(kind.__call__, "operator", operator_api=describe)
                for kind in (torch._ops.OpOverloadPacket, torch._ops.OpOverload)
            ]
        return self._operators

    def _prepare_indexing(self) -> list[AttributeSwap]:
        if not self._everything:
            return []
        if not self._indexing:
            api = make_api("Tensor.__getitem__", "FOCUS")
            index = _agent.intercept(torch.Tensor.__getitem__, "api", api=api)
            self._indexing = [AttributeSwap(torch.Tensor, "__getitem__", index)]
        return self._indexing

    def _hook_optimizers(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self._optimizer_hooks = [
            register_optimizer_step_pre_hook(lambda *_: self.set_phase("optimizer")),
            register_optimizer_step_post_hook(lambda *_: self.set_phase("")),
        ]

    def _prepare_apis(self) -> None:
        if self._prepared_apis:
            return
        self._prepared_apis = True
        sections = read_names((Path(__file__).parent / "api_names.txt").read_text(encoding="utf-8"))
        risks = {name: level for level in ("CORE", "LOW") for name in sections[f"risk {level}"]}
        seen: dict[int, str] = {}
        for prefix, owner, name, function in self._functions(sections):
            last = name.rsplit(".", 1)[-1]
            if id(function) in seen and seen[id(function)] == prefix:
                continue
            api = make_api(f"{prefix}.{last}", risks.get(name, risks.get(last, "FOCUS")))
            if id(function) in seen:
                stand_in = _agent.stand_in(function, api)
                if stand_in is not None and prefix == "Torch":
                    self._apis.append(AttributeSwap(owner, last, stand_in))
                continue
            if isinstance(function, types.FunctionType):
                self._apis.append(CodeSwap(function, "api", api=api))
            elif isinstance(
                function, types.WrapperDescriptorType
            ):  # a slot, such as __setitem__, has no definition to swap
                self._apis.append(AttributeSwap(owner, last, _agent.intercept(function, "api", api=api)))
            elif not _agent.prepare_method(function, api):
                continue
            seen[id(function)] = prefix
        self._apis += self._unlisted_names(set(sections["Tensor torch.Tensor"]), seen)
        if (work := getattr(torch.distributed, "Work", None)) is not None:
            self._apis.append(AttributeSwap(work, "wait", _agent.intercept(work.wait, "wait")))
        clip = torch.nn.utils
        for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"):
            function = getattr(clip, name, None)
            if isinstance(function, types.FunctionType):
                self._apis.append(CodeSwap(function, "phase", phase="clip_grad"))

    @staticmethod
    def _unlisted_names(listed: set[str], seen: dict[int, str]) -> list["CodeSwap | AttributeSwap"]:
        """Plain calls for names of Tensor that are not listed but are the same object as one that is (``__neg__``)."""
        plain: list[CodeSwap | AttributeSwap] = []
        for name, function in list(vars(torch.Tensor).items()):
            if name in listed or seen.get(id(function)) != "Tensor":
                continue
            if isinstance(function, types.FunctionType):
                twin = types.FunctionType(
                    function.__code__,
                    function.__globals__,
                    function.__name__,
                    function.__defaults__,
                    function.__closure__,
                )
                twin.__kwdefaults__ = function.__kwdefaults__
                plain.append(AttributeSwap(torch.Tensor, name, twin))
            elif (method := _agent.plain_method(function)) is not None:
                plain.append(AttributeSwap(torch.Tensor, name, method))
        return plain

    @staticmethod
    def _functions(sections: dict[str, list[str]]) -> Iterator[tuple[str, Any, str, Any]]:
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

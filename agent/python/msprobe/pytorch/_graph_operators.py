"""Level L1 of a compiled model: probes around the operators of each graph, put in before a backend gets it.

The graph is torch.compile's own, of torch functions and methods, so that operators have the names of eager dumps; which
of them are recorded is the same list, too.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.swaps import read_names
from msprobe.pytorch._graph_plan import Call, GraphPlan, frames_of, module_path
from msprobe.pytorch.interception import functions_of

_followers: weakref.WeakSet[GraphOperators] = weakref.WeakSet()


class GraphOperators:
    """Adds the operators of every graph that is compiled from now on to a plan."""

    def __init__(self, plan: GraphPlan, config: Any, module_names: dict[str, str], inputs: bool, outputs: bool) -> None:
        self._plan, self._inputs, self._outputs = plan, inputs, outputs
        self._everything = config.capture == "all"
        self._namespaces = frozenset(config.custom_op_namespaces)
        self._modules = module_names  # path -> name without count
        self._in_modules = config.level == "mix"
        self._names, self._methods = _api_names()
        _followers.add(self)
        _follow_compilations()

    def add_to(self, module: torch.fx.GraphModule) -> None:
        graph, events = module.graph, self._plan.events
        next_count = self._plan.operator_counts()
        known: dict[torch.fx.Node, int] = {}  # tensors read, and not written since
        owners = [owner for node in graph.nodes if (owner := self._owner(node)) is not None]
        cursor = events.index((owners[0][0], True)) if owners else len(events)
        within: Call | None = None  # the module that the probes seen so far stand in
        for node in list(graph.nodes):
            if (owner := self._owner(node)) is not None:
                call, part = owner
                cursor = events.index((call, part == "enter")) + 1
                within = call if part == "enter" else call.parent
                continue
            name = self._name(node)
            if name is not None and _tensors(node.meta.get("example_value")):
                call = self._plan.call(
                    name, False, next_count(name), within or self._parent(node), _frames(node), cursor
                )
                cursor = events.index((call, False)) + 1
                self._probe(module, node, call, known)
            if _writes(node):
                known.clear()
        module.recompile()

    def _probe(self, module: Any, node: torch.fx.Node, call: Call, known: dict[torch.fx.Node, int]) -> None:
        plan = self._plan
        if self._inputs:
            with module.graph.inserting_before(node):
                plan.add(call, "enter", ("key", "input_args"))
                self._walk(module, call, "enter", list(node.args), known)
                plan.add(call, "enter", ("key", "input_kwargs"))
                self._walk(module, call, "enter", dict(node.kwargs), known)
        if _writes(node):
            known.clear()
        if not self._outputs:
            return
        with module.graph.inserting_after(node):
            plan.add(call, "exit", ("key", "output"))
            value = node.meta["example_value"]
            if isinstance(value, torch.Tensor):
                plan.add(call, "exit", ("list",))
                self._tensor(module, call, "exit", node, known)
                plan.add(call, "exit", ("end",))
            else:
                self._several(module, call, node, value, known)

    def _several(self, module: Any, call: Call, node: torch.fx.Node, values: Any, known: dict[Any, int]) -> None:
        self._plan.add(call, "exit", ("list",))
        for index, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                self._plan.add(call, "exit", ("none",))
                continue
            with module.graph.inserting_after(node):
                item = module.graph.call_function(operator.getitem, (node, index))
            item.meta["example_value"] = value
            with module.graph.inserting_after(item):
                self._tensor(module, call, "exit", item, known)
        self._plan.add(call, "exit", ("end",))

    def _walk(self, module: Any, call: Call, part: str, value: Any, known: dict[torch.fx.Node, int]) -> None:
        plan = self._plan
        if isinstance(value, torch.fx.Node):
            if isinstance(value.meta.get("example_value"), torch.Tensor):
                self._tensor(module, call, part, value, known)
            else:
                plan.add(call, part, ("none",))
        elif isinstance(value, bool):
            plan.add(call, part, ("boolean", value))
        elif isinstance(value, int):
            plan.add(call, part, ("integer", value))
        elif isinstance(value, float):
            plan.add(call, part, ("float", value))
        elif isinstance(value, str):
            plan.add(call, part, ("string", value))
        elif isinstance(value, (list, tuple)):
            plan.add(call, part, ("list",))
            for item in value:
                self._walk(module, call, part, item, known)
            plan.add(call, part, ("end",))
        elif isinstance(value, dict):
            plan.add(call, part, ("dict",))
            for key, item in value.items():
                plan.add(call, part, ("key", str(key)))
                self._walk(module, call, part, item, known)
            plan.add(call, part, ("end",))
        else:
            plan.add(call, part, ("none",))

    def _tensor(self, module: Any, call: Call, part: str, node: torch.fx.Node, known: dict[torch.fx.Node, int]) -> None:
        value = node.meta["example_value"]
        device = value.device
        if node in known:  # the same tensor, not written since it was read
            self._plan.add(call, part, ("probe", self._plan.tables[device], known[node], value.requires_grad))
            return
        index = self._plan.probe(call, part, device, value.requires_grad)
        if index < 0:
            return
        known[node] = index
        slots = self._slots(module, device)
        if slots is None:
            call.fields[part][-1] = ("none",)
            del known[node]
            return
        module.graph.call_function(torch.ops.msprobe.probe.default, (node, slots, index, self._plan.tables[device].id))

    def _slots(self, module: Any, device: torch.device) -> torch.fx.Node | None:
        """The graph's input of the slots, which a traced module has touched; None: none has."""
        table = self._plan.tables[device].id
        for node in module.graph.nodes:
            if node.op == "call_function" and "msprobe.probe" in str(node.target) and node.args[3] == table:
                return node.args[1]
        return None

    def _owner(self, node: torch.fx.Node) -> tuple[Call, str] | None:
        if node.op != "call_function" or "msprobe.probe" not in str(node.target):
            return None
        return self._plan.owners.get((node.args[3], node.args[2]))

    def _parent(self, node: torch.fx.Node) -> Call | None:
        if not self._in_modules:
            return None
        for traced, _ in reversed(list((node.meta.get("nn_module_stack") or {}).values())):
            parts = module_path(traced).split(".")
            for begin in range(len(parts)):
                name = self._modules.get(".".join(parts[begin:]))
                if name is not None and (call := self._plan.calls.get(f"{name}.forward.0")) is not None:
                    return call
        return None

    def _name(self, node: torch.fx.Node) -> str | None:
        target: Any = node.target
        if node.op == "call_method":
            return f"Tensor.{target}" if self._everything or target in self._methods else None
        if node.op != "call_function" or target is operator.getitem:
            return None
        if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            packet = target._name if isinstance(target, torch._ops.OpOverload) else target._qualified_op_name
            namespace, _, name = packet.partition("::")
            wanted = self._everything or namespace in self._namespaces
            return f"{namespace}.{name.partition('.')[0]}" if wanted and namespace != "msprobe" else None
        if getattr(target, "__module__", None) == "_operator":
            method = f"__{target.__name__}__"
            return f"Tensor.{method}" if self._everything or method in self._methods else None
        found = self._names.get(target)
        return found or (f"Torch.{target.__name__}" if self._everything and hasattr(target, "__name__") else None)


def _tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (
        isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value)
    )


def _writes(node: torch.fx.Node) -> bool:
    """Whether the operator may write to a tensor that was there before."""
    target: Any = node.target
    if node.op == "call_method":
        return str(target).endswith("_") and not str(target).endswith("__")
    if node.op != "call_function":
        return node.op == "call_module"
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable and "msprobe" not in target._name
    if isinstance(target, (torch._ops.HigherOrderOperator, torch._ops.OpOverloadPacket)):
        return "msprobe" not in str(target)
    name = getattr(target, "__name__", "")
    in_place = getattr(target, "__module__", "") == "_operator" and (
        name in ("setitem", "delitem") or (name.startswith("i") and hasattr(operator, name[1:]))
    )
    return in_place or "out" in node.kwargs or bool(node.kwargs.get("inplace")) or name.endswith("_")


def _frames(node: torch.fx.Node) -> list[Any]:
    text = node.meta.get("stack_trace")
    if not text:
        return []
    import re
    import traceback

    lines = re.findall(r'File "([^"]*)", line (\d+), in (\S+)', text)
    return frames_of([traceback.FrameSummary(path, int(line), name, lookup_line=False) for path, line, name in lines])


@functools.cache
def _api_names() -> tuple[dict[Any, str], frozenset[str]]:
    """Function -> record's name, and the methods of tensors that are listed."""
    sections = read_names((Path(__file__).parent / "api_names.txt").read_text(encoding="utf-8"))
    names: dict[Any, str] = {}
    for prefix, _, name, function in functions_of(sections):
        if prefix == "Tensor":
            continue
        try:
            names.setdefault(function, f"{prefix}.{name.rsplit('.', 1)[-1]}")
        except TypeError:  # not hashable
            continue
    return names, frozenset(sections["Tensor torch.Tensor"])


def _follow_compilations() -> None:
    """Every graph that torch.compile traces passes here on its way to a backend. Once a process."""
    from torch._dynamo.output_graph import OutputGraph

    original: Callable[..., Any] = OutputGraph.call_user_compiler
    if getattr(original, "_msprobe", False):
        return

    @functools.wraps(original)
    def call_user_compiler(self: Any, module: Any, *arguments: Any, **keywords: Any) -> Any:
        for follower in _live():
            try:
                follower.add_to(module)
            except Exception as error:
                log.warning(f"msprobe: the operators of a graph are not captured: {error}")
        return original(self, module, *arguments, **keywords)

    call_user_compiler._msprobe = True  # type: ignore[attr-defined]
    OutputGraph.call_user_compiler = call_user_compiler


def _live() -> Iterator[GraphOperators]:
    yield from list(_followers)

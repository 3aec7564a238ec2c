"""An ONNX graph as the calls of the program that was exported: each with its module and the values that leave it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.given_file import opened
from msprobe_client.output.extras import extra

EXTRA = "onnx"
# Of offline models that need Huawei's CANN, and what they are.
_OF_CANN = {".om": "an offline model of CANN", ".mindir": "a model of MindSpore", ".air": "a graph of CANN"}
_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"


@dataclass(slots=True)
class OnnxCall:
    """Nodes that were one call of the program: of one FX node, of one innermost module, or a node by itself."""

    node: str  # name of the last
    operator: str  # aten.linear.default; without the exporter's word for it, ONNX's: MatMul
    module: str  # layers.0.fc; empty: of the root
    inputs: list[str] = field(default_factory=list)  # values of other calls and of the graph, without constants
    outputs: list[str] = field(default_factory=list)  # values that others take


@dataclass(slots=True)
class OnnxModule:
    """One call of a module of the program."""

    name: str
    kind: str  # its class; empty: the exporter does not say
    count: int
    inputs: list[str]
    outputs: list[str]
    last: int  # place of its last call


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    model: Any
    path: Path
    inputs: tuple[str, ...]
    calls: tuple[OnnxCall, ...]
    modules: tuple[OnnxModule, ...]

    @classmethod
    def open(cls, path: Path) -> OnnxGraph:
        if path.suffix in _OF_CANN:
            raise InvalidArgument(
                f"{path} is {_OF_CANN[path.suffix]}, which runs on an Ascend NPU alone; "
                "give the .onnx that it was made of"
            )
        onnx = extra("onnx", EXTRA)
        opened(path).close()
        try:
            model = onnx.load(str(path))
        except FileNotFoundError as error:
            raise DataError(f"{error.filename or path} does not exist; external data lie beside their model") from None
        except Exception as error:  # protobuf's, and onnx's own of external data
            raise DataError(f"{path} is no ONNX model: {error}") from None
        constants = {each.name for each in model.graph.initializer}
        inputs = tuple(each.name for each in model.graph.input if each.name not in constants)
        nodes = [_Node.of(node) for node in model.graph.node]
        if not nodes:
            raise DataError(f"{path} has no node; it is no ONNX model with a graph")
        moving = _moving(nodes, inputs)
        results = [each.name for each in model.graph.output]
        calls = _calls(nodes, moving, results)
        return cls(model, path, inputs, tuple(calls), tuple(_modules(calls, nodes, results)))

    def values(self) -> list[str]:
        """All that leaves a call, in order."""
        return list(dict.fromkeys(value for call in self.calls for value in call.outputs))


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    operator: str
    scopes: tuple[str, ...]  # of modules, outermost first
    classes: tuple[str, ...]
    group: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, node: Any) -> _Node:
        words = {each.key: each.value for each in node.metadata_props}
        scopes, classes = _listed(words.get(_NAME_SCOPES)), _listed(words.get(_CLASSES))
        inputs = (*node.input, *_captured(node))
        if scopes and len(scopes) == len(classes):
            modules = [(scope, kind) for scope, kind in zip(scopes[:-1], classes[:-1], strict=True) if scope]
            names, kinds = [scope for scope, _ in modules], [kind.rpartition(".")[2] for _, kind in modules]
            return cls(node.name, classes[-1], tuple(names), tuple(kinds), scopes[-1], inputs, tuple(node.output))
        parts = node.name.split("/")[1:-1] if node.name.startswith("/") else []
        names = [".".join(parts[: end + 1]) for end in range(len(parts))]
        return cls(node.name, node.op_type, tuple(names), ("",) * len(names), "", inputs, tuple(node.output))


def _listed(text: str | None) -> list[str]:
    try:
        found = ast.literal_eval(text) if text else []
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(each) for each in found] if isinstance(found, list) else []


def _captured(node: Any) -> Iterator[str]:
    """Values that the branches and bodies of a node take from around it."""
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            own = {each.name for each in graph.initializer} | {each.name for each in graph.input}
            for inner in graph.node:
                yield from (name for name in (*inner.input, *_captured(inner)) if name and name not in own)
                own |= set(inner.output)


def _moving(nodes: Sequence[_Node], inputs: Sequence[str]) -> set[str]:
    """Values that depend on the graph's inputs, and these."""
    found = set(inputs)
    for node in nodes:
        if found & set(node.inputs):
            found |= set(filter(None, node.outputs))
    return found


def _calls(nodes: Sequence[_Node], moving: set[str], results: Sequence[str]) -> list[OnnxCall]:
    inner = {scope for node in nodes for scope in node.scopes[:-1]}
    groups: dict[tuple[str, str], list[_Node]] = {}
    for at, node in enumerate(nodes):
        module = node.scopes[-1] if node.scopes else ""
        alone = not node.group and (not module or module in inner)
        groups.setdefault((module, node.group or (f"#{at}" if alone else "")), []).append(node)
    makers = {value: key for key, members in groups.items() for node in members for value in node.outputs if value}
    takers: dict[str, set[tuple[str, str]]] = {}
    for key, members in groups.items():
        for node in members:
            for value in node.inputs:
                takers.setdefault(value, set()).add(key)
    found = []
    for key, members in groups.items():
        taken = dict.fromkeys(value for node in members for value in node.inputs if value in moving)
        given = [value for node in members for value in node.outputs if value in moving]
        call = OnnxCall(members[-1].name, members[-1].operator, key[0])
        call.inputs = [value for value in taken if makers.get(value) != key]
        call.outputs = [value for value in given if value in results or takers.get(value, set()) - {key}]
        if call.outputs:
            found.append(call)
    order = {node.name: at for at, node in enumerate(nodes)}
    return sorted(found, key=lambda call: order[call.node])


def _modules(calls: Sequence[OnnxCall], nodes: Sequence[_Node], results: Sequence[str]) -> Iterator[OnnxModule]:
    kinds = {scope: kind for node in nodes for scope, kind in zip(node.scopes, node.classes, strict=True)}
    for scope in sorted(kinds):
        inside = [at for at, call in enumerate(calls) if _within(call.module, scope)]
        if not inside:
            continue
        made = {value for at in inside for value in calls[at].outputs}
        outside = {value for call in calls if not _within(call.module, scope) for value in call.inputs} | set(results)
        taken = dict.fromkeys(value for at in inside for value in calls[at].inputs if value not in made)
        given = [value for at in inside for value in calls[at].outputs if value in outside]
        name, _, count = scope.partition("@")
        number = int(count) if count.isdecimal() else 0
        yield OnnxModule(name, kinds[scope], number, list(taken), given, inside[-1])


def _within(module: str, scope: str) -> bool:
    return module == scope or module.startswith(f"{scope}.")

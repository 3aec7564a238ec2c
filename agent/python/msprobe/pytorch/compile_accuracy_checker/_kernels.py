"""What inductor makes of graphs: the kernels, the operators that each computes, and whether each computes them right.

Inductor writes a Python program that calls its kernels. While it is watched, the program tells after each call which
buffers the kernel was given. A buffer is the value of a node of the graph, so the graph can run beside it, eagerly and
node by node: wherever a kernel left a value, that value is held against the eager one and goes on in its place. Each
kernel is thus judged on the inputs that it had. Fusion is as it is without a watch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe._common import log
from msprobe.pytorch.compile_accuracy_checker._judging import Judge

_RAN = f"__import__({__name__!r}, fromlist=['ran']).ran"


@dataclass(frozen=True)
class Operator:
    """One operator of a graph."""

    name: str  # of its value: "mul_1"
    call: str  # "mul_1 = aten.mul.Tensor(relu, 0.5)"
    source: str  # the line of the model that asked for it: "net.py:12 in forward: y = x * 0.5"; empty: not known

    def __str__(self) -> str:
        return f"{self.call}  # {self.source}" if self.source else self.call


@dataclass(frozen=True)
class Kernel:
    """A kernel with what it computes. One that inductor takes from a library stands under its operator's name."""

    name: str  # "cpp_fused_add_mul_relu_0"
    operators: tuple[Operator, ...]  # in the graph's order


@dataclass(frozen=True)
class WrongKernel:
    """A kernel that computed something else than its operators do, on the inputs that it had."""

    kernel: Kernel
    output: str  # the value that differs: a name among its operators
    operators: tuple[Operator, ...]  # of the kernel, those that this output comes from
    excess: float  # worst difference in times of the tolerance
    max_abs: float


@dataclass
class Graph:
    """A graph as inductor lowers it."""

    module: torch.fx.GraphModule
    kernels: list[Kernel] = field(default_factory=list)
    # Node whose value lies in memory -> its kernel, and the operators of that one which make it.
    values: dict[str, tuple[Kernel, tuple[Operator, ...]]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        return [_call(node) for node in self.module.graph.nodes if node.op == "call_function"]


class KernelWatch:
    """Watches inductor as long as the context lasts, in this process and for one thread.

    judge: holds each kernel against its operators, as each graph runs; None: only notes what is compiled.
    """

    def __init__(self, judge: Judge | None = None) -> None:
        self.graphs: list[Graph] = []
        self.wrong: list[WrongKernel] = []  # in the order of running
        self.compared = 0  # values that kernels left
        self._judge = judge
        self._known: dict[Any, Graph] = {}  # by torch's GraphLowering
        self._values: dict[str, torch.Tensor] = {}  # node -> what a kernel left, of the graph that runs
        self._running: Graph | None = None

    def __enter__(self) -> KernelWatch:
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen
        from torch._inductor.graph import GraphLowering
        from torch._inductor.output_code import CompiledFxGraph

        global _watch
        self._former, _watch = _watch, self
        self._held = ExitStack()
        self._held.enter_context(_around(GraphLowering, "codegen", self._codegen))
        self._held.enter_context(_around(PythonWrapperCodegen, "generate_kernel_call", self._kernel_call))
        if self._judge is not None:
            self._held.enter_context(_around(CompiledFxGraph, "__call__", self._run))
        return self

    def __exit__(self, *_: object) -> None:
        global _watch
        _watch = self._former
        self._held.close()

    def kernel_of(self, node: str) -> Kernel | None:
        """The kernel that computes a node."""
        kernels = (kernel for graph in self.graphs for kernel in graph.kernels)
        return next((each for each in kernels if any(operator.name == node for operator in each.operators)), None)

    def _codegen(self, codegen: Callable[..., Any], lowering: Any, *args: Any) -> Any:
        graph = Graph(lowering.orig_gm)
        self.graphs.append(graph)
        self._known[lowering] = graph
        return codegen(lowering, *args)

    def _kernel_call(
        self, generate: Callable[..., Any], wrapper: Any, name: str, call_args: Any, *args: Any, **kwargs: Any
    ) -> Any:
        from torch._inductor.virtualized import V

        done = generate(wrapper, name, call_args, *args, **kwargs)
        graph = self._known.get(V.graph)
        if graph is None:
            return done
        # Values that a kernel keeps to itself: the argument is the memory that they could have been written to.
        never_written = V.graph.removed_buffers.union(V.graph.inplaced_to_remove)
        left: list[tuple[str, str]] = []
        made: list[str] = []
        for argument in call_args:
            buffer: Any = V.graph.try_get_buffer(argument) if isinstance(argument, str) else None
            origin = getattr(buffer, "origin_node", None)
            if origin is None or argument in never_written:
                continue
            left.append((argument, origin.name))
            if origin.name not in graph.values:
                operators = _operators(graph, set(buffer.origins))
                graph.values[origin.name] = Kernel(str(origin.target), operators), operators
                if type(buffer).__name__ == "ComputedBuffer":
                    made.append(origin.name)
        computed = {operator for node in made for operator in graph.values[node][1]}
        kernel = Kernel(name, tuple(each for each in _operators(graph, None) if each in computed))
        graph.values.update({node: (kernel, graph.values[node][1]) for node in made})
        graph.kernels.append(kernel)
        if self._judge is not None and left:
            buffers = ", ".join(f"{node!r}: {argument}" for argument, node in left)
            wrapper.writeline(f"{_RAN}({self.graphs.index(graph)}, {{{buffers}}})")
        return done

    def ran(self, graph: int, buffers: dict[str, Any]) -> None:
        """A kernel has run that was given these: node -> its value."""
        if graph >= len(self.graphs):
            return  # compiled under another watch
        self._running = self.graphs[graph]
        for node, value in buffers.items():
            if isinstance(value, torch.Tensor) and node not in self._values:
                self._values[node] = value.detach().clone()

    def _run(self, call: Callable[..., Any], compiled: Any, inputs: Any) -> Any:
        given = [each.detach().clone() if isinstance(each, torch.Tensor) else each for each in inputs]
        self._values, self._running = {}, None
        result = call(compiled, inputs)
        if self._running is not None:
            beside = _Beside(self._running.module, self._values)
            try:
                with torch.no_grad():
                    beside.run(*given, enable_io_processing=False)
            except Exception as error:
                log.warning(f"a graph does not run eagerly, so some kernels are not judged: {said(error)}")
            self._hold(self._running, beside.pairs)
        self._values = {}
        return result

    def _hold(self, graph: Graph, pairs: list[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
        assert self._judge is not None
        self.compared += len(pairs)
        for node, found, expected in pairs:
            excess, max_abs = self._judge.measured(found, expected)
            if excess > 1:
                kernel, operators = graph.values[node]
                self.wrong.append(WrongKernel(kernel, node, operators, excess, max_abs))


class _Beside(torch.fx.Interpreter):
    """Runs a graph eagerly; what a kernel left goes on in place of the eager value, and makes a pair with it."""

    def __init__(self, module: torch.fx.GraphModule, values: dict[str, torch.Tensor]) -> None:
        super().__init__(module)
        self._values = values
        self.pairs: list[tuple[str, torch.Tensor, torch.Tensor]] = []  # node, what was left, what is right

    def run_node(self, n: torch.fx.Node) -> Any:
        found = self._values.get(n.name)
        if found is not None and torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()):
            return found  # drawn; another draw says nothing
        expected = super().run_node(n)
        if found is None or not isinstance(expected, torch.Tensor) or found.shape != expected.shape:
            return expected
        self.pairs.append((n.name, found, expected.detach().clone()))
        return found


def said(error: Exception) -> str:
    """The error's first words; torch's compiler begins with a line of who raised."""
    return " ".join(str(error).split("\n\n")[0].split()) or type(error).__name__


_watch: KernelWatch | None = None


def ran(graph: int, buffers: dict[str, Any]) -> None:
    """Called by the programs that inductor writes while a KernelWatch lasts; those that outlive it call in vain."""
    if _watch is not None:
        _watch.ran(graph, buffers)


@contextmanager
def _around(owner: type, name: str, wrapped: Callable[..., Any]) -> Iterator[None]:
    """owner.name becomes wrapped(the former, self, ...)."""
    former = getattr(owner, name)

    @functools.wraps(former)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapped(former, self, *args, **kwargs)

    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, former)


def _operators(graph: Graph, nodes: set[Any] | None) -> tuple[Operator, ...]:
    """Those of some nodes, or of all, in the graph's order."""
    return tuple(
        Operator(node.name, _call(node), _source(node))
        for node in graph.module.graph.nodes
        if node.op == "call_function" and (nodes is None or node in nodes)
    )


def _call(node: torch.fx.Node) -> str:
    words = [repr(each) for each in node.args] + [f"{name}={value!r}" for name, value in node.kwargs.items()]
    return f"{node.name} = {node.target}({', '.join(words)})"


def _source(node: torch.fx.Node) -> str:
    """The innermost frame, as "net.py:12 in forward: y = x * 0.5"."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    frames = [index for index, line in enumerate(lines) if line.startswith("File ")]
    if not frames:
        return ""
    file, line, function = [*lines[frames[-1]].removeprefix("File ").split(", "), "", ""][:3]
    text = "".join(lines[frames[-1] + 1 : frames[-1] + 2])
    place = f"{file.strip(chr(34)).rsplit('/', 1)[-1]}:{line.removeprefix('line ')}"
    return f"{place} {function}: {text}" if text else f"{place} {function}"

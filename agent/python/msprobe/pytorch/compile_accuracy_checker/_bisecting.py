"""bisect_compile: which part of torch.compile makes a program compute something else, down to a kernel's operators."""

from __future__ import annotations

import contextlib
import difflib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe.pytorch._step_state import StepState
from msprobe.pytorch.compile_accuracy_checker._judging import Judge
from msprobe.pytorch.compile_accuracy_checker._kernels import KernelWatch, Operator, WrongKernel, said

Outcome: TypeAlias = dict[str, torch.Tensor]  # name -> what a run computed


@dataclass(frozen=True)
class CompileFault:
    """Where compiled and eager begin to differ. As a string: a report of some lines."""

    backend: str  # the first that differs: eager, aot_eager, aot_eager_decomp_partition, inductor ...
    # Without which all agrees: "lowerings", "post_grad_passes"; or a setting with whose other value all agrees:
    # "inductor_emulate_precision_casts". Empty: none of them is at fault alone.
    subsystem: str
    number: int | None  # of the subsystem's applications, the one that is at fault; None: it has none
    detail: str  # torch's word for that application: a pass's name, a node
    kernel: str  # the first that differs: "cpp_fused_add_mul_0"; empty: none, or a backend without kernels
    operators: tuple[Operator, ...]  # what the differing output of that kernel is computed by
    output: str  # that output, a name among the operators; of a pass: what it made
    excess: float  # the worst difference there, in times of the tolerance
    removed: tuple[str, ...]  # operators of the graph that the pass replaced
    added: tuple[str, ...]  # by these
    differs: tuple[str, ...]  # results of the whole that differ: "output.0", "gradient of weight"

    def __str__(self) -> str:
        part = f"{self.backend}: {self.subsystem}" if self.subsystem else self.backend
        number = f" (application {self.number}: {self.detail})" if self.number is not None and self.detail else ""
        more = f" and {len(self.differs) - 3} more" if len(self.differs) > 3 else ""
        verb = "differs" if len(self.differs) == 1 else "differ"
        lines = [f"{', '.join(self.differs[:3])}{more} {verb} from eager; first in {part}{number}"]
        if self.kernel:
            worst = f", {self.excess:.3g} x tolerance at {self.output}" if self.excess else ""
            lines += [f"  kernel {self.kernel}{worst}", *(f"    {each}" for each in self.operators)]
        lines += [f"  - {line}" for line in self.removed] + [f"  + {line}" for line in self.added]
        return "\n".join(lines)


def bisect_compile(
    fn: Callable[..., Any],
    *inputs: Any,
    model: torch.nn.Module | None = None,
    backward: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
) -> CompileFault | None:
    """Runs fn(*inputs) eagerly and under torch.compile, and says where the results begin to differ. None: nowhere.

    fn: a module or a function. model: the module that a function uses, whose gradients count too.
    backward: what fn gave gets gradients, and the gradients of parameters and inputs are compared; a function that
    calls backward itself is left to it.
    rtol, atol: of floating dtypes; by default those of torch.testing.assert_close for each dtype. 0 and 0: bits.

    Each run begins with the same parameters, buffers, inputs and random numbers, and they are as before at the end.
    Takes some 15 compilations where something differs, and one where nothing does. What the process has compiled before
    is forgotten, and compiled again when it is called.
    """
    if not callable(fn):
        raise MsprobeError(f"fn is {fn!r}; it should be a module or a function")
    if model is not None and not isinstance(model, torch.nn.Module):
        raise MsprobeError(f"model is a {type(model).__name__}; it should be a torch.nn.Module")
    module = fn if isinstance(fn, torch.nn.Module) else model
    state = StepState([] if module is None else [module], None, inputs)

    def run(compiled: bool) -> Outcome:
        try:
            return _outcome(torch.compile(fn) if compiled else fn, inputs, module, backward)
        finally:
            state.restore()

    return find_fault(run, Judge(rtol, atol))


def find_fault(run: Callable[[bool], Outcome], judge: Judge) -> CompileFault | None:
    """run(compiled): what a program computes, the same each time; compiled by torch.compile without a backend."""
    if find_spec("torch._inductor.compiler_bisector") is None:
        raise MsprobeError(f"bisecting needs torch 2.6 or later; this is {torch.__version__}")
    with _uncached(), _forgotten():
        expected = run(False)
        if changing := _differences(run(False), expected, judge):
            raise MsprobeError(f"{changing[0]} differs between two eager runs; fn should compute the same each time")
        torch._dynamo.reset()
        with KernelWatch(judge) as full:
            differs = _differences(run(True), expected, judge)
        if not differs:
            return None
        bisection = _Bisection(lambda: not _differences(run(True), expected, judge))
        found = bisection.find()
    if found is None:  # the backends one by one agree, where the first run did not
        raise MsprobeError("compiled results differ from run to run, so nothing can be bisected")
    removed, added = bisection.changed_lines() if found.subsystem and "_passes" in found.subsystem else ((), ())
    wrong = None if added or found.backend != "inductor" else _wrong(found.debug_info, full.wrong)
    if wrong is not None:
        located = wrong.kernel.name, wrong.operators, wrong.output
    else:
        located = _named(found.debug_info, added, bisection.failing if added else full)
    counted = found.debug_info != found.subsystem  # a setting of inductor has no applications
    return CompileFault(
        backend=found.backend,
        subsystem=found.subsystem or "",
        number=found.bisect_number if counted else None,
        detail=(found.debug_info or "") if counted else "",
        kernel=located[0],
        operators=located[1],
        output=located[2],
        excess=wrong.excess if wrong is not None else 0.0,
        removed=removed,
        added=added,
        differs=differs,
    )


class _Bisection:
    """torch's CompilerBisector, with the graphs of the last run that agreed and of the last that did not."""

    def __init__(self, agrees: Callable[[], bool]) -> None:
        self._agrees = agrees
        self._last: dict[bool, KernelWatch] = {}

    def find(self) -> Any:
        from torch._inductor.compiler_bisector import CompilerBisector

        shown = sys.stdout

        def agrees() -> bool:
            torch._dynamo.reset()
            with KernelWatch() as watch, contextlib.redirect_stdout(shown):
                try:
                    found = self._agrees()
                except Exception as error:  # what cannot be tried is neither at fault nor a cure
                    backend, subsystem = CompilerBisector.get_backend(), CompilerBisector.get_subsystem()
                    log.warning(f"{backend} {subsystem or ''}".rstrip() + f" cannot be tried: {said(error)}")
                    return not subsystem
            self._last[found] = watch
            return found

        before = CompilerBisector.bisection_enabled
        with contextlib.redirect_stdout(io.StringIO()):  # torch says each of its steps
            try:
                return CompilerBisector.do_bisect(agrees)
            except RuntimeError as error:
                if "find_max_bounds" not in str(error):
                    raise
                raise MsprobeError("compiled results differ from run to run, so nothing can be bisected") from None
            finally:
                if CompilerBisector.in_process_cache is not None:  # kept by the frames of an error
                    CompilerBisector.delete_bisect_status()
                    CompilerBisector.in_process_cache = None
                    CompilerBisector.bisection_enabled = before
                torch._dynamo.reset()

    @property
    def failing(self) -> KernelWatch | None:
        return self._last.get(False)

    def changed_lines(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Lines of the graphs that only the last agreeing run had, and only the last failing one: what one pass did."""
        passing, failing = (
            [line for graph in (self._last[agrees].graphs if agrees in self._last else []) for line in graph.lines()]
            for agrees in (True, False)
        )
        changes = list(difflib.ndiff(passing, failing))
        removed, added = (tuple(line[2:] for line in changes if line.startswith(mark)) for mark in ("- ", "+ "))
        return removed, added


def _wrong(node: str | None, wrong: list[WrongKernel]) -> WrongKernel | None:
    """The first kernel that differs; rather the first of those that hold the node, where torch names one."""
    holding = (each for each in wrong if any(operator.name == node for operator in each.kernel.operators))
    return next(holding, wrong[0] if wrong else None)


def _named(
    node: str | None, added: tuple[str, ...], watch: KernelWatch | None
) -> tuple[str, tuple[Operator, ...], str]:
    """The first kernel that holds what a pass added, or the node that torch names; its operators, and that node."""
    for name in [line.split(" = ")[0] for line in added] or [node or ""]:
        kernel = None if watch is None else watch.kernel_of(name)
        if kernel is not None:
            return kernel.name, kernel.operators, name
    return "", (), ""


def _outcome(call: Callable[..., Any], inputs: Any, module: torch.nn.Module | None, backward: bool) -> Outcome:
    leaves = dict(_leaves(inputs, module))
    before = {name: _state(leaf.grad) for name, leaf in leaves.items()}
    result = call(*inputs)
    outputs = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
    has_run = any(_state(leaf.grad) != before[name] for name, leaf in leaves.items())
    if backward and not has_run:
        wanted = [each for each in outputs if each.requires_grad and each.grad_fn is not None]
        if wanted:
            torch.autograd.backward(wanted, [_drawn(each) for each in wanted])
    found = {f"output.{index}": each for index, each in enumerate(outputs)}
    found |= {f"gradient of {name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return {name: each.detach().clone() for name, each in found.items()}


def _state(gradient: torch.Tensor | None) -> tuple[int, int]:
    """Another one once a backward pass has given or added to the gradient."""
    return (0, 0) if gradient is None else (id(gradient), gradient._version)


def _leaves(inputs: Any, module: torch.nn.Module | None) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters() if module is not None else ()
    for index, each in enumerate(pytree.tree_leaves(inputs)):
        if isinstance(each, torch.Tensor) and each.is_leaf and each.requires_grad:
            yield f"input.{index}", each


def _drawn(output: torch.Tensor) -> torch.Tensor:
    """A gradient that is no special case, the same each time."""
    drawn = torch.randn(output.shape, generator=torch.Generator().manual_seed(1234), dtype=torch.float64)
    return drawn.to(output.dtype).to(output.device)


def _differences(found: Outcome, expected: Outcome, judge: Judge) -> tuple[str, ...]:
    names = dict.fromkeys([*expected, *found])
    return tuple(
        name
        for name in names
        if name not in found or name not in expected or not judge.agree(found[name], expected[name])
    )


@contextlib.contextmanager
def _forgotten() -> Iterator[None]:
    """Compiled programs that tell a watch what they do do not outlive it."""
    try:
        yield
    finally:
        torch._dynamo.reset()


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
    """Compiles each graph anew, as what is bisected is the compiling. Random numbers are drawn as eager draws them."""
    import torch._functorch.config
    import torch._inductor.config

    with (
        torch._inductor.config.patch(fx_graph_cache=False, fx_graph_remote_cache=False, fallback_random=True),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield

"""PrecisionChecker: the modules of a model eagerly and under torch.compile, beside each other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msprobe._common import arguments, log
from msprobe._common.errors import MsprobeError
from msprobe.pytorch._step_state import StepState
from msprobe.pytorch.compile_accuracy_checker import _report
from msprobe.pytorch.compile_accuracy_checker._bisecting import CompileFault, find_fault
from msprobe.pytorch.compile_accuracy_checker._graph_files import graph_files
from msprobe.pytorch.compile_accuracy_checker._judging import Judge
from msprobe.pytorch.compile_accuracy_checker._placing import (
    CastModule,
    StandIns,
    is_inside,
    outermost,
    placed,
    replace,
)
from msprobe.pytorch.compile_accuracy_checker._replayed import KeptCalls
from msprobe.pytorch.compile_accuracy_checker._results import CompareResult, ModuleDiff, TensorDiff
from msprobe.pytorch.compile_accuracy_checker._two_runs import TwoRuns

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)

Step = Callable[[Any], Any]  # runs the model that it is given, and gives the loss


class PrecisionChecker:
    """checker.wrap_all_children(model); checker.report(checker.compare(run_step, model), "result.csv")

    Each wrapped module is compiled by itself; where none is, the whole model. Its inputs, outputs and their gradients
    become two runs in a store, "eager" and "compiled", that the server compares by the tolerances of the dtype.

    backend: of torch.compile.
    threshold: without effect, as the tolerance is that of the dtype, or rtol and atol.
    dump_graphs, graph_dir: the graphs of the compiled modules, a Python file each.
    cast_dtype: the wrapped modules run under autocast to it, eager and compiled.
    capture_input: inputs stand in the report and the csv.
    single_pass: the model runs once, compiled, and each compiled module again eagerly on the inputs and gradients that
    it had: an error stands at the module that makes it. Otherwise the model runs twice, errors go on from module to
    module, and gradients of parameters are compared too.
    data_dir: of the store; not used where MSPROBE_SERVER names a server.
    """

    def __init__(
        self,
        backend: Any = "aot_eager",
        threshold: float = 1e-4,
        dump_graphs: bool = False,
        graph_dir: str = "./graph_dump",
        cast_dtype: torch.dtype | None = None,
        capture_input: bool = True,
        single_pass: bool = True,
        *,
        data_dir: str | os.PathLike[str] = "./compile_check",
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        if cast_dtype is not None and not isinstance(cast_dtype, torch.dtype):
            raise MsprobeError(f"cast_dtype is {cast_dtype!r}; it should be a dtype, as torch.bfloat16")
        if isinstance(backend, str) and backend not in (known := torch._dynamo.list_backends(exclude_tags=())):
            named = ", ".join(each for each in known if "TESTING" not in each)
            raise MsprobeError(f"backend is {backend!r}; it should be one of {named}, or a function")
        self.backend = backend
        self.threshold = threshold
        self.dump_graphs = arguments.boolean(dump_graphs, "dump_graphs")
        self.graph_dir = graph_dir
        self.cast_dtype = cast_dtype
        self.capture_input = arguments.boolean(capture_input, "capture_input")
        self.single_pass = arguments.boolean(single_pass, "single_pass")
        self._judge = Judge(rtol, atol)
        self._data_dir = data_dir
        self._wrapped: dict[int, torch.nn.Module] = {}
        self._ignored: dict[int, torch.nn.Module] = {}
        self._installed: _Installed | None = None

    # Which modules are compiled, and which are left out of the comparison.

    def wrap(self, module: torch.nn.Module, name: str | None = None) -> torch.nn.Module:
        """name: without effect, as rows have the name that the module has in its model."""
        del name
        if type(_module(module)).forward is torch.nn.Module.forward:
            raise MsprobeError(
                f"the module is a {type(module).__name__}, which is never called and so cannot be compiled; wrap the "
                "modules in it, or use wrap_all_children(model)"
            )
        self._wrapped[id(module)] = module
        return module

    def wrap_by_policy(self, model: torch.nn.Module, module_types: Sequence[type]) -> torch.nn.Module:
        """Every module of these classes."""
        for module in _of_types(model, module_types, "wrap_by_policy"):
            self.wrap(module)
        return model

    def wrap_all_children(self, model: torch.nn.Module, depth: int = 1) -> torch.nn.Module:
        """The children of the model at this depth, and those above without children. Containers do not count."""
        for child in _module(model).children():
            if isinstance(child, _CONTAINERS):
                self.wrap_all_children(child, depth)
            elif depth <= 0 or not any(True for _ in child.children()):
                self.wrap(child)
            else:
                self.wrap_all_children(child, depth - 1)
        return model

    def ignore(self, module: torch.nn.Module) -> torch.nn.Module:
        """The module, with all in it, is not compared."""
        self._ignored[id(_module(module))] = module
        return module

    def ignore_by_policy(self, model: torch.nn.Module, module_types: Sequence[type]) -> torch.nn.Module:
        for module in _of_types(model, module_types, "ignore_by_policy"):
            self.ignore(module)
        return model

    # Comparing.

    def compare(self, fn: Step, model: torch.nn.Module) -> CompareResult:
        """fn(model) runs a step, with its backward if that is to be compared, and gives the loss.

        The model, its gradients and random numbers are then as they were.
        """
        modules = self._modules(model)
        state = StepState([model], None, ())
        eager, compiled = self._stand_ins(modules), self._compiled(modules)
        loss_eager = None
        with closing(TwoRuns(self._data_dir)) as runs:
            try:
                if not self.single_pass:
                    with placed(model, modules, eager) as plain, runs.captured("eager", eager, model):
                        loss_eager = _loss(fn(plain))
                        runs.record_gradients(modules, model)
                    state.restore()
                kept = KeptCalls(compiled if self.single_pass else {})
                torch._dynamo.reset()
                with (
                    closing(kept),
                    placed(model, modules, compiled) as fast,
                    self._graphs(),
                    runs.captured("compiled", compiled, model),
                ):
                    loss_compiled = _loss(fn(fast))
                    if not self.single_pass:
                        runs.record_gradients(modules, model)
                if self.single_pass:
                    state.restore()
                    with runs.captured("eager", eager, model):
                        kept.run_again(eager)
            finally:
                state.restore()
            return self._result(model, modules, runs, loss_eager, loss_compiled)

    def bisect(self, fn: Step, model: torch.nn.Module) -> CompileFault | None:
        """Where fn(model) begins to differ under torch.compile, down to inductor's kernel; see bisect_compile."""
        modules = self._modules(model)
        state = StepState([model], None, ())

        def run(compiled: bool) -> dict[str, torch.Tensor]:
            stand_ins = self._stand_ins(modules)
            if compiled:  # by the backend that is tried
                stand_ins = {name: torch.compile(each) for name, each in stand_ins.items()}
            try:
                with placed(model, modules, stand_ins) as whole:
                    loss = _loss(fn(whole))
                found = {"loss": loss}
                found |= {f"gradient of {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
                return {name: each.detach().clone() for name, each in found.items()}
            finally:
                state.restore()

        return find_fault(run, self._judge)

    def install(self, model: torch.nn.Module) -> torch.nn.Module:
        """Compiles the wrapped modules in the model, for good. The step that follows is compared by collect()."""
        if not self.single_pass:
            raise RuntimeError("install() is for single_pass=True")
        if self._installed is not None:
            raise MsprobeError("install() was called already; call collect() before another install()")
        modules = self._modules(model)
        if "" in modules:
            raise MsprobeError("nothing in the model is wrapped; call wrap() or wrap_all_children() before install()")
        compiled = self._compiled(modules)
        runs = TwoRuns(self._data_dir)
        replace(model, modules, compiled)
        torch._dynamo.reset()
        until_collect = ExitStack()
        until_collect.enter_context(self._graphs())
        until_collect.enter_context(runs.captured("compiled", compiled, model))
        kept = until_collect.enter_context(closing(KeptCalls(compiled)))
        self._installed = _Installed(model, modules, runs, kept, until_collect, StepState([model], None, ()))
        return model

    def record_loss(self, loss: Any) -> None:
        """The loss of the step, for the report."""
        self._the_installed().loss = _loss(loss)

    def collect(self, loss: Any = None) -> CompareResult:
        """Compares the step since install()."""
        installed = self._the_installed()
        if loss is not None:
            self.record_loss(loss)
        self._installed = None
        model, eager = installed.model, self._stand_ins(installed.modules)
        with closing(installed.runs):
            installed.until_collect.close()
            now = StepState([model], None, ())
            try:
                installed.state.restore()  # the optimizer may have changed the weights since
                with installed.runs.captured("eager", eager, model):
                    installed.kept.run_again(eager)
            finally:
                now.restore()
            return self._result(model, installed.modules, installed.runs, None, installed.loss)

    def report(self, result: CompareResult, csv_path: str | None = None) -> None:
        """Prints the result, and writes it as csv where a path is given."""
        for line in _report.lines(result, with_inputs=self.capture_input):
            print(line)
        if csv_path:
            try:
                _report.write_csv(result, Path(csv_path), with_inputs=self.capture_input)
            except OSError as error:
                raise MsprobeError(f"csv_path {csv_path!r} cannot be written: {error.strerror}") from None
            print(f"CSV report saved to: {csv_path}")

    def _modules(self, model: torch.nn.Module) -> StandIns:
        return outermost(_module(model), lambda module: id(module) in self._wrapped)

    def _stand_ins(self, modules: StandIns) -> StandIns:
        """What is called eagerly."""
        if self.cast_dtype is None:
            return modules
        return {name: CastModule(module, self.cast_dtype) for name, module in modules.items()}

    def _compiled(self, modules: StandIns) -> StandIns:
        return {name: _compile(module, self.backend) for name, module in self._stand_ins(modules).items()}

    def _graphs(self) -> AbstractContextManager[None]:
        return graph_files(self.graph_dir) if self.dump_graphs else nullcontext()

    def _the_installed(self) -> _Installed:
        if self._installed is None:
            raise MsprobeError("there is no step to collect; call install(model) first")
        return self._installed

    def _result(
        self,
        model: torch.nn.Module,
        modules: StandIns,
        runs: TwoRuns,
        loss_eager: torch.Tensor | None,
        loss_compiled: torch.Tensor | None,
    ) -> CompareResult:
        ignored = [name for name, module in model.named_modules() if id(module) in self._ignored]
        diffs = {diff.name: diff for diff in runs.compare(self._judge.rtol, self._judge.atol)}
        for name, _ in model.named_modules():
            shown = name or type(model).__name__
            if any(name == each or is_inside(name, each) for each in ignored):
                diffs[shown] = ModuleDiff(shown, note="IGNORED")
            elif not self.single_pass and any(is_inside(name, outer) for outer in modules):
                diffs[shown] = ModuleDiff(shown, note="SKIP_inside_compiled")
        passes = loss_eager is None or loss_compiled is None or self._judge.agree(loss_compiled, loss_eager)
        eager, compiled = (math.nan if loss is None else loss.item() for loss in (loss_eager, loss_compiled))
        return CompareResult(
            eager, compiled, [diffs[name] for name in sorted(diffs)], self.cast_dtype, passes, runs.runs, runs.store
        )


@dataclass
class _Installed:
    """The step between install() and collect()."""

    model: torch.nn.Module
    modules: StandIns
    runs: TwoRuns
    kept: KeptCalls
    until_collect: ExitStack
    state: StepState
    loss: torch.Tensor | None = None


def _compile(module: torch.nn.Module, backend: Any) -> torch.nn.Module:
    # Random numbers are drawn as eager draws them, or each dropout would be another.
    options = {"fallback_random": True} if backend == "inductor" else None
    compiled: torch.nn.Module = torch.compile(module, backend=backend, options=options)
    return compiled


def _loss(loss: Any) -> torch.Tensor:
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss.detach().clone().reshape(())
    if isinstance(loss, (int, float)):
        return torch.tensor(loss, dtype=torch.float64)
    found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
    raise MsprobeError(f"the loss is {found}; it should be a number or a tensor of one element")


def _module(value: Any) -> torch.nn.Module:
    if not isinstance(value, torch.nn.Module):
        raise MsprobeError(f"the module is a {type(value).__name__}; it should be a torch.nn.Module")
    return value


def _of_types(model: torch.nn.Module, module_types: Any, method: str) -> list[torch.nn.Module]:
    types = _types(module_types)
    found = [module for module in _module(model).modules() if isinstance(module, types)]
    if not found:
        names = ", ".join(each.__name__ for each in types) or "no class"
        log.warning(f"{method}: {type(model).__name__} has no module of {names}, so this changes nothing")
    return found


def _types(value: Any) -> tuple[type, ...]:
    types = tuple(value) if isinstance(value, (list, tuple, set)) else (value,)
    if wrong := [each for each in types if not (isinstance(each, type) and issubclass(each, torch.nn.Module))]:
        raise MsprobeError(f"module_types has {wrong[0]!r}; it should have classes of modules, as torch.nn.Linear")
    return types


__all__ = ["CompareResult", "ModuleDiff", "PrecisionChecker", "TensorDiff"]

"""PrecisionDebugger for PyTorch: the class users start and stop. It leaves the capturing to C++."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from msprobe._common import arguments, log
from msprobe._common.custom_apis import CustomApis
from msprobe._common.debugger import Debugger
from msprobe._common.errors import MsprobeError
from msprobe._common.gradient_watch import GradientWatch
from msprobe._common.saving import Saver
from msprobe._common.swaps import Swap, stand_in
from msprobe.pytorch._empty_step import why_empty
from msprobe.pytorch._listed_apis import ListedApis
from msprobe.pytorch._module_dump import ModuleDumper
from msprobe.pytorch._module_inputs import ModuleInputs
from msprobe.pytorch._open_agent import TorchConfigFile, distributed_rank, open_agent, tell_of_other_ranks
from msprobe.pytorch._series_observer import TrainingSeries
from msprobe.pytorch._step_state import StepState
from msprobe.pytorch._weights import WEIGHTS, checked_cast, digests_of, tensors_of
from msprobe.pytorch.free_benchmark.stage import FreeBenchmark
from msprobe.pytorch.graft.feeding import GoldenInputs
from msprobe.pytorch.graft.grafting import Asked, Grafting, take_out
from msprobe.pytorch.interception import Interception, listed_names, make_api, risk_levels


class PrecisionDebugger(Debugger):
    """Captures API calls and modules of a PyTorch model, between start() and stop(), step by step."""

    framework = "pytorch"
    rank_source = "torch.distributed"
    file_class = TorchConfigFile

    @classmethod
    def start(
        cls,
        model: Any = None,
        token_range: Sequence[int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: Mapping[str, int] | None = None,
    ) -> None:
        """Begins to capture into the present step.

        model: the module (or list of modules) whose submodules are recorded; needed at levels L0 and mix, and with
        token_range and load.
        token_range: [first, last], both captured: forward passes of the (first) model, counted from 0 at each start.
        rank_id: names the rank where torch.distributed does not.
        scheduled_tokens: request id -> number of its tokens in the batch, in the batch's order; with request_id in the
        configuration only that request's rows are kept, and a step without it is skipped. Which positions of which
        request each forward pass holds is recorded, so that a token of a request can be asked for.
        """
        cls._the()._start(
            arguments.models(model, torch.nn.Module, "torch.nn.Module"),
            arguments.token_range(token_range),
            arguments.rank_id(rank_id),
            arguments.scheduled_tokens(scheduled_tokens),
        )

    @classmethod
    def monitor(cls, model: torch.nn.Module) -> None:
        """Task grad_probe: from now on each call of an optimizer keeps what the gradients of these parameters are.

        Does nothing with another task. Given a second model, its parameters are watched as well.
        """
        debugger = cls._the()
        if not isinstance(model, torch.nn.Module):
            raise MsprobeError(f"monitor: the model is a {type(model).__name__}; it should be a torch.nn.Module")
        if debugger._monitor(model.named_parameters()) and debugger._optimizer_hook is None:
            debugger._optimizer_hook = register_optimizer_step_pre_hook(_before_optimizer)

    @classmethod
    def module_dump(cls, module: torch.nn.Module, dump_name: str) -> None:
        """Level L1: records this module, not its children, as ``Module.{dump_name}.{class}``, until module_dump_end.

        No API is recorded meanwhile.
        """
        cls._the().module_dumper.start_module_dump(module, dump_name)

    @classmethod
    def module_dump_end(cls) -> None:
        """Ends module_dump: APIs are recorded again, the module is not."""
        cls._the().module_dumper.stop_module_dump()

    @classmethod
    def replay(
        cls,
        step_fn: Callable[..., Any],
        *inputs: Any,
        model: Any = None,
        optimizer: Any = None,
        rank_id: int | None = None,
    ) -> Any:
        """Runs step_fn(*inputs) twice from the same state, as two steps with checksums, and returns the second result.

        ``msprobe-client replay RUN`` names the first operation whose inputs agree and whose output does not. Before the
        second pass these have their values again: random generators of Python, numpy and torch with its devices;
        parameters, buffers and gradients of model; state of optimizer; tensors and generators in inputs. The program
        goes on from the second pass, as after one. Not between start() and stop().

        model: a module, or a list of modules; without one, only API calls are recorded.
        optimizer: one, or a list; also whatever else has state_dict and load_state_dict (a scheduler, a scaler).
        rank_id: as in start().
        """
        debugger = cls._the()
        models = arguments.models(model, torch.nn.Module, "torch.nn.Module")
        state = StepState(models, optimizer, inputs)
        return debugger._replay(models, lambda: step_fn(*inputs), state.restore, arguments.rank_id(rank_id))

    @classmethod
    def weights(cls, weights: Any, cast: torch.dtype | None = None) -> None:
        """Records what the weights are now, into the present step, for ``msprobe-client weights RUN GOLDEN``.

        Of each tensor a digest by blocks of rows goes to the server, made where the tensor lies; nothing of the model
        changes. It waits once for each device. Every step counts, whether or not it is captured.

        weights: a module, whose parameters and buffers are named as in its state_dict, or a mapping of names to
        tensors. A DTensor is a shard of its whole; where plain tensors are shards, Part(tensor, shape, offset) says so.
        cast: also the digest of each floating tensor rounded to this dtype, for another side that has it so.
        """
        cls._the()._record_weights(weights, cast)

    @classmethod
    def local_error(
        cls,
        step_fn: Callable[..., Any],
        *inputs: Any,
        model: Any,
        golden: str | os.PathLike[str],
        step: int | None = None,
        optimizer: Any = None,
        rank_id: int | None = None,
    ) -> Any:
        """Runs step_fn(*inputs) twice from the same state, and returns the second result: see replay.

        The first pass is as it is. In the second each module gets the inputs that its call has in the golden, whatever
        the modules before it made: what its output is wrong by then, it adds itself. Both are steps with the content of
        every tensor; `msprobe-client local-error RUN GOLDEN` lists what each module adds, and what it inherits.

        golden: the dump directory of a run of task tensor with modules, or run:NAME of one in a store. step: of the
        golden; default: that of the first pass.
        """
        debugger = cls._the()
        models = arguments.models(model, torch.nn.Module, "torch.nn.Module")
        fed = GoldenInputs(golden, step, str(debugger.config.server or ""))
        rank = arguments.rank_id(rank_id)
        first = debugger.service.loop + debugger.service.init_step
        fed.begin(first, debugger._framework_rank() if rank is None else rank)
        state = StepState(models, optimizer, inputs)

        def feed() -> None:
            names = [name for name, _ in debugger._submodules()]
            debugger._agent.set_stage("local_error", fed, records=names)

        result = debugger._replay(models, lambda: step_fn(*inputs), state.restore, rank, feed)
        fed.tell_failed()
        return result

    @classmethod
    def graft(
        cls,
        names: str | Sequence[str] | None = None,
        source: str | os.PathLike[str] | None = None,
        *,
        inherit: bool = False,
        step: int | None = None,
    ) -> None:
        """From the next start() on, the outputs of these modules are others than they give; [] ends it.

        names: ``layers.0.mlp``, ``Module.layers.0.mlp.MLP``, a shell pattern over either, or one call,
        ``Module.layers.0.mlp.MLP.forward.0``. Without arguments: as ``msprobe-client bisect`` asks, and nothing where
        it did not start the program.
        source: the dump directory of a run of task tensor, or run:NAME of one in a store: its outputs of the same call;
        "float64" or "float32": the module computed in that dtype.
        inherit: takes out only what the module itself adds to the error against the golden.
        step: of the golden; default: the same.

        Gradients go through what the module itself computed. Records of these calls say that they were touched.
        """
        cls._the()._graft(names, source, inherit, step)

    @classmethod
    def bisect(
        cls,
        distance: Callable[[], Any],
        source: str | os.PathLike[str],
        *,
        model: Any,
        limit: float | None = None,
        names: str | Sequence[str] = "*",
        step: int | None = None,
    ) -> Any:
        """Finds the smallest set of modules whose repair makes the final output agree, and returns its names and runs.

        distance(): runs the model, always alike, and gives how far its final output is from the right one; up to
        `limit` it agrees; None: there is a fault, and one call more, which repairs all modules, says what agrees.
        source, step: as in graft(); a golden's modules are repaired with inherit. names: of the
        modules that may be at fault. Nothing of these runs is kept. Not between start() and stop().

        One fault takes at most ceil(log2 N) + 2 calls of distance() for N modules; m faults m * (ceil(log2 N) + 1) + 2.
        MsprobeError: not even the repair of all modules agrees, or one cannot be repaired.
        """
        from msprobe.pytorch.graft.bisecting import bisect

        return bisect(cls._the(), distance, source, model, limit, [names] if isinstance(names, str) else names, step)

    def _make_parts(self) -> None:
        self._grafting: Grafting | None = None
        self.module_dumper = ModuleDumper(self)
        self._interception = Interception()
        if self.config.level in ("L1", "mix"):
            self._interception.prepare()
        self._gradients = GradientWatch()
        self._optimizer_hook: Any = None
        self._custom_apis = CustomApis(self._interception, _swaps_of)
        self._listed_apis = ListedApis(self._custom_apis)
        self._saver = Saver(
            lambda: self._agent, lambda: self.service.loop + self.service.init_step, torch.Tensor, _hook_gradient
        )
        self._loaded = self._make_inputs()
        self._free_benchmark: tuple[Any, FreeBenchmark] | None = None  # with the configuration that it is of

    def _open_session(self) -> Any:
        return open_agent(self.config, self._rank, self._after_failed_pass)

    def _set_batch(self, scheduled: dict[str, int]) -> None:
        self._agent.set_batch(list(scheduled.items()))

    def _framework_rank(self) -> int | None:
        return distributed_rank()

    def _why_empty(self, asked: dict[str, Any], *, passes: bool, calls: bool) -> str:
        return why_empty(self.config.level, asked, self._models, self._tokens, passes=passes, calls=calls)

    def _install(self) -> None:
        self._interception.set_phase = self._agent.set_phase
        tell_of_other_ranks()
        self._perturb_calls()
        with_apis = self.config.level in ("L1", "mix") and not self.module_dumper.named
        if with_apis:
            self._listed_apis.register()
        self._interception.install(
            with_apis=with_apis, namespaces=self.config.custom_op_namespaces, everything=self.config.capture == "all"
        )

    def _perturb_calls(self) -> None:
        """Task free_benchmark: calls go through its stage. What it has learned stays as long as the configuration."""
        if self.config.task != "free_benchmark":
            return
        if self._free_benchmark is None or self._free_benchmark[0] is not self.config:
            self._free_benchmark = self.config, FreeBenchmark(self.config, lambda: self._rank)
        self._agent.set_stage("free_benchmark", self._free_benchmark[1], behind_observer=True)

    def _record_weights(self, weights: Any, cast: Any) -> None:
        if not self._followed.enabled or self._forked:
            return
        cast, named = checked_cast(cast), tensors_of(weights)
        self._update_rank(None)
        if self.config.rank and self._rank not in self.config.rank:
            return
        self._open()
        was_running = self._running
        if was_running:  # what is computed here is no part of the step
            self._stop_capture()
        step = self.service.current_iter = self.service.loop + self.service.init_step
        try:
            for (name, _), value in zip(named, digests_of(named, cast)):
                self._saver.record(f"{WEIGHTS}{name}", value)
        except Exception as error:
            log.error(f"weights: those of step {step} were not recorded: {type(error).__name__}: {error}")
        self._step_has_records = True
        if was_running:
            self._start([], self._tokens, None, None)

    def _uninstall(self) -> None:
        self._interception.restore()

    def _uninstall_in_child(self) -> None:
        self._interception.after_fork()

    def recapture(self) -> None:
        """module_dump has begun or ended: intercepts what is wanted now, if capturing."""
        if self._running:
            self.module_dumper.add_to(self._agent)
            self._install()

    def forget_module(self, module: torch.nn.Module) -> None:
        if self._agent is not None:
            self._agent.remove_module(module)

    def _after_failed_pass(self) -> None:
        """A served batch raised, its step was never ended, and the next batch begins, of which nothing was said."""
        log.warning(
            f"the forward pass of step {self.service.current_iter} raised and nobody ended the step: it ends here, "
            "and the next batch is the next step"
        )
        self._end_step(True)
        self._agent.set_batch([])
        if self.config.request_id:  # whose rows nobody has told
            self._stop_capture()

    def _make_training(self) -> TrainingSeries:
        return TrainingSeries(self)

    @property
    def _loads_only(self) -> bool:
        return self.config.load is not None and not self.config.load.dump_after_load

    def _make_inputs(self) -> ModuleInputs | None:
        return None if self.config.load is None else ModuleInputs(self.config.load)

    def _start_loading(self) -> None:
        assert self._loaded is not None
        step = self.service.current_iter
        self._loaded.unhook()
        if not self._loaded.begin(step, self._rank):
            return
        self._loaded.check(name for name, _ in self._submodules())
        self._loaded.hook(self._submodules())
        self._running = True
        self._tell_of_start(
            f"Inputs of {len(self._loaded.names)} module calls are replaced at step {step}; nothing is recorded."
        )

    def _graft(self, names: Any, source: Any, inherit: Any, step: Any) -> None:
        server = str(self.config.server or "")
        if names is None and source is None:
            grafting = Grafting.of_environment(server)
        elif source is None and not isinstance(names, str) and not names:
            grafting = None
        else:
            grafting = Grafting(Asked.of(names, source, inherit, step), server)
        self._set_graft(grafting)

    def _set_graft(self, grafting: Grafting | None) -> None:
        if grafting is not None and self.config.level not in ("L0", "mix"):
            raise MsprobeError(
                f"graft: level is {self.config.level}, which captures no modules; it should be L0 or mix"
            )
        self._grafting = grafting
        if self._agent is not None:
            take_out(self._agent)

    def _stop_capture(self) -> None:
        if self._running and self._grafting is not None:
            self._grafting.end()
        super()._stop_capture()

    def _load_inputs(self) -> None:
        if self._grafting is not None:
            self._grafting.put(self._agent, dict(self._submodules()), self.service.current_iter, self._rank)
        if self._loaded is None:
            return
        self._loaded.unhook()
        active = self._loaded.begin(self.service.current_iter, self._rank)
        if active:
            self._loaded.check(name for name, _ in self._submodules())
        if self.config.level == "L1":  # whose modules are not captured
            if active:
                self._loaded.hook(self._submodules())
        else:
            self._agent.set_stage("load", self._loaded if active else None, records=self._loaded.names)

    def _submodules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """(name without count, module) of every module below the models, as records have them."""
        for model in self._models:
            for index, root in enumerate(model if isinstance(model, list) else [model]):
                prefix = f"Module.{index}" if isinstance(model, list) else "Module"
                for name, module in root.named_modules():
                    kind = type(module).__name__
                    if module is not root and kind != "FullyShardedDataParallel":
                        yield f"{prefix}.{name}.{kind}", module

    def _register_models(self) -> None:
        self.module_dumper.add_to(self._agent)
        if self._registered == len(self._models):
            return
        if self.config.level in ("L0", "mix"):
            for name, module in self._submodules():
                self._agent.add_module(module, name=name, is_root=False)
        for model in self._models:
            root = model[0] if isinstance(model, list) else model
            recorded = self.config.capture == "all" and self.config.level in ("L0", "mix")
            prefix = "Module.0" if isinstance(model, list) else "Module"
            name = f"{prefix}.{type(root).__name__}" if recorded else ""
            self._agent.add_module(root, name=name, is_root=True)
        self._agent.expect(list(self._parameters()))
        self._registered = len(self._models)

    def _parameters(self) -> Iterator[torch.Tensor]:
        """Of the models that the agent does not know yet."""
        for model in self._models[self._registered :]:
            for root in model if isinstance(model, list) else [model]:
                yield from root.parameters()


def _swaps_of(module: Any, api: str, full_name: str) -> list[Swap]:
    risk = risk_levels(listed_names()).get(api, "FOCUS")
    return stand_in(module, api, make_api(full_name, risk))


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """Megatron's main_grad where there is one; of a tensor that is sharded, the shard of this rank."""
    gradient = getattr(parameter, "main_grad", None)
    if gradient is None:
        gradient = parameter.grad
    gradient = getattr(gradient, "_local_tensor", gradient)
    return gradient if isinstance(gradient, torch.Tensor) else None


def _before_optimizer(*_: Any) -> None:
    """Of every optimizer, on its thread."""
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._optimizer_steps(gradient_of)


def _hook_gradient(tensor: torch.Tensor, callback: Callable[[torch.Tensor], None]) -> None:
    if tensor.requires_grad:
        tensor.register_hook(callback)


__all__ = ["MsprobeError", "PrecisionDebugger"]

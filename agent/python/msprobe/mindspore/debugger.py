"""PrecisionDebugger for MindSpore: the class users start and stop. It leaves the capturing to C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mindspore import Tensor, nn
from mindspore.ops import Primitive

from msprobe._common import arguments
from msprobe._common.custom_apis import CustomApis
from msprobe._common.debugger import Debugger
from msprobe._common.errors import MsprobeError
from msprobe._common.gradient_watch import GradientWatch
from msprobe._common.saving import Saver
from msprobe.mindspore._calls import Calls
from msprobe.mindspore._cell_dump import CellDump
from msprobe.mindspore._cell_names import named_cells
from msprobe.mindspore._gradients import are_recorded, has_gradient
from msprobe.mindspore._interception import Interception, is_compiled
from msprobe.mindspore._kernel_dump import KernelConfigFile, KernelDump, dumps_kernels
from msprobe.mindspore._open_agent import distributed_rank, open_agent
from msprobe.mindspore._optimizers import is_optimizer, observe
from msprobe.mindspore._program_error import raise_program_error
from msprobe.mindspore._refusals import refuse
from msprobe.mindspore._series_observer import TrainingSeries
from msprobe.mindspore._why_empty import why_empty
from msprobe.mindspore.free_benchmark.stage import FreeBenchmark


class PrecisionDebugger(Debugger):
    """Captures API calls and cells of a MindSpore model in PyNative mode, between start() and stop(), step by step.

    At level L2 MindSpore dumps its kernels itself, between start() and stop(). In GRAPH_MODE on Ascend, level L0 puts
    operators into the graph that write what cells get and give.
    """

    framework = "mindspore"
    rank_source = "mindspore.communication"
    file_class = KernelConfigFile

    @classmethod
    def start(cls, model: Any = None, token_range: Sequence[int] | None = None, rank_id: int | None = None) -> None:
        """Begins to capture into the present step.

        model: the cell (or list of cells) whose inner cells are recorded, and primitives with them; needed at levels L0
        and mix, and with token_range.
        token_range: [first, last], both captured: forward passes of the (first) model, counted from 0 at each start.
        rank_id: names the rank where mindspore.communication does not.
        """
        cls._the()._start(
            arguments.models(model, nn.Cell, "mindspore.nn.Cell"),
            arguments.token_range(token_range),
            arguments.rank_id(rank_id),
            None,
        )

    @classmethod
    def monitor(cls, opt: nn.Cell) -> None:
        """Task grad_probe: from now on each call of an optimizer keeps what the gradients of these parameters are.

        opt: the optimizer; or a cell, whose parameters any optimizer takes. Does nothing with another task. Given a
        second one, its parameters are watched as well.
        """
        debugger = cls._the()
        if not isinstance(opt, nn.Cell):
            raise MsprobeError(
                f"monitor: what is given is a {type(opt).__name__}; it should be an optimizer, or a mindspore.nn.Cell"
            )
        if debugger._monitor(_named_parameters(opt)) and not debugger._watches_optimizers:
            debugger._watches_optimizers = True
            observe(debugger)

    @classmethod
    def remember(cls, model: nn.Cell) -> None:
        """The model of later calls of start() that name none, if none has been given yet."""
        debugger = cls._the()
        if not debugger._models:
            debugger._models = [model]

    @classmethod
    def exists(cls) -> bool:
        """Whether one has been constructed in this process."""
        return cls._instance is not None and cls._instance._initialised

    def stepping(self, _optimizer: Any, gradients: Mapping[int, Tensor]) -> None:
        """Of msprobe.mindspore._optimizers: an optimizer is about to step."""
        self._optimizer_steps(lambda parameter: gradients.get(id(parameter)))

    def stepped(self, _optimizer: Any) -> None:
        """Nothing is looked at then."""

    def _make_parts(self) -> None:
        self._gradients = GradientWatch()
        self._watches_optimizers = False
        self._calls = Calls(lambda: self._step_has_records)
        self._free_benchmark: tuple[Any, FreeBenchmark] | None = None  # with the configuration that it is of
        self._interception = Interception(self._calls)
        self._custom_apis = CustomApis(self._interception, self._interception.swaps_of)
        self._saver = Saver(
            lambda: self._agent, lambda: self.service.loop + self.service.init_step, Tensor, _hook_gradient
        )

    def _refuse(self, config: Any) -> None:
        asked = self._file.asked()
        self._graph_dump = KernelDump.of(asked, config) or CellDump.of(asked, config)
        if self._graph_dump is None:
            refuse(config)

    def _refuse_change(self, asked: dict[str, Any], config: Any) -> None:
        if self._graph_dump is not None:
            return
        if dumps_kernels(asked):
            what = "level is 'L2'" if asked.get("level") == "L2" else f"task is {asked['task']!r}"
            raise MsprobeError(
                f"{what}, which MindSpore reads when the program starts; start the program again with it"
            )
        refuse(config)

    # Level L2, and L0 in GRAPH_MODE.

    def _start(
        self, models: list[Any], tokens: tuple[int, int] | None, rank_id: int | None, scheduled: dict[str, int] | None
    ) -> None:
        if self._graph_dump is None:
            return super()._start(models, tokens, rank_id, scheduled)
        step = self.service.current_iter = self.service.loop + self.service.init_step
        self._tell_warnings()
        self._update_rank(rank_id)
        self._add_models(models)
        if dumped := self._graph_dump.start(self._models, step, self._rank):
            self._tell_of_start(f"MindSpore dumps {dumped} from step {step} on.")

    def _stop(self) -> None:
        if self._graph_dump is None:
            super()._stop()
            return raise_program_error()
        self._graph_dump.stop()

    def _end_step(self, dump: bool) -> None:
        if self._graph_dump is None:
            super()._end_step(dump)
            return raise_program_error()
        self._graph_dump.end_step()
        self.service.loop += 1

    def _make_training(self) -> TrainingSeries:
        return TrainingSeries(self)

    def _open_session(self) -> Any:
        return open_agent(self.config, self._rank)

    def _framework_rank(self) -> int | None:
        return distributed_rank()

    def _why_empty(self, asked: dict[str, Any], *, passes: bool, calls: bool) -> str:
        return why_empty(self.config.level, asked, self._models, self._tokens, passes=passes, calls=calls)

    def _install(self) -> None:
        self._calls.agent = self._agent
        self._calls.look_at_frozen()
        self._perturb_calls()
        level = self.config.level
        self._interception.install(with_apis=level in ("L1", "mix"), with_cells=level in ("L0", "mix"))

    def _perturb_calls(self) -> None:
        """Task free_benchmark: calls go through its stage. What it has told stays as long as the configuration."""
        perturbs = self.config.task == "free_benchmark"
        if perturbs and (self._free_benchmark is None or self._free_benchmark[0] is not self.config):
            self._free_benchmark = self.config, FreeBenchmark(self.config, lambda: self._rank)
        self._calls.stage = self._free_benchmark[1] if perturbs and self._free_benchmark else None
        self._agent.touch_calls(perturbs)

    def _uninstall(self) -> None:
        self._interception.restore()

    def _uninstall_in_child(self) -> None:
        self._calls.agent = None
        self._interception.after_fork()

    def _finish_calls(self) -> None:
        self._calls.finish()

    def _end(self) -> None:
        super()._end()
        self._calls.release_parameters()

    def _register_models(self) -> None:
        if self._registered == len(self._models):
            return
        self._calls.forget_models()
        with_cells = self.config.level in ("L0", "mix")
        compiled = []
        for model in self._models:
            for cell, name, index in named_cells(model):
                full_name = name if with_cells else ""
                self._calls.add_cell(cell, full_name, is_root=index == 0)
                if full_name and is_compiled(cell):
                    compiled.append(full_name)
                self._add_primitives(cell)
        self._registered = len(self._models)
        if compiled and self.config.task in ("statistics", "tensor"):  # the server puts their records into graph/
            self._agent.set_compiled_cells(compiled)

    def _add_primitives(self, cell: nn.Cell) -> None:
        for attribute, value in vars(cell).items():
            if isinstance(value, Primitive) and self._calls.add_primitive(
                value, f"Primitive.{attribute}.{type(value).__name__}"
            ):
                self._interception.add_primitive_class(type(value))


def _named_parameters(cell: nn.Cell) -> Iterator[tuple[str, Any]]:
    """Of an optimizer those that it steps, by the names that they carry."""
    if is_optimizer(cell):
        return ((parameter.name, parameter) for parameter in cell.parameters)
    return cell.parameters_and_names()


def _hook_gradient(tensor: Tensor, callback: Callable[[Tensor], None]) -> None:
    if not has_gradient(tensor) or not are_recorded():
        return

    def tell(gradient: Tensor) -> Tensor:
        callback(gradient)
        return gradient

    tensor.register_hook(tell)


__all__ = ["MsprobeError", "PrecisionDebugger"]

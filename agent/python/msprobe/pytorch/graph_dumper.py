"""AclGraphDumper: captures models that run as graphs (torch.compile, CUDA and ACL graphs), and eager ones alike."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from typing import Any

import torch

from msprobe import _agent
from msprobe._common import arguments, log
from msprobe._common.errors import MsprobeError, end_with_message
from msprobe._common.followed_config import FollowedConfig
from msprobe._common.leaving import leave
from msprobe._common.live_control import LiveControl
from msprobe._common.service import Service
from msprobe._common.step_bounds import StepBounds
from msprobe.pytorch._graph_forward import ProbedModules
from msprobe.pytorch._graph_plan import GraphPlan
from msprobe.pytorch._open_agent import TorchConfigFile, distributed_rank, open_agent
from msprobe.pytorch.acl_save import flush_saves

_LEVELS = ("L0", "L1", "mix")
_TASKS = ("statistics", "tensor")


class AclGraphDumper:
    """start(model) once, before the model is compiled or captured; step() after each replay.

    start puts probes into the model, which the graph is then traced with; they stay for good, and a switch in device
    memory turns them off. step reads what they left, once, and sends it. There is no stop: a runner that looks for one
    would call it between steps.

    Nothing raises into the run once start has returned. One thread calls start and step.
    """

    def __init__(self, config_path: str | os.PathLike[str] | None = None) -> None:
        try:
            self._configure(TorchConfigFile(config_path, None, None, None, None))
        except MsprobeError as error:
            end_with_message(error)
            raise
        self.service = Service()
        self._agent: Any = None
        self._rank: int | None = None
        self._plan: GraphPlan | None = None
        self._modules: ProbedModules | None = None
        self._operators: Any = None
        self._parameters: dict[int, tuple[int, int]] = {}  # probe -> data pointer and version when it was read
        self._batch: list[tuple[str, int, int]] = []  # of the present step: set_batch
        self._on = True
        self._missed_said = False
        self._pid = os.getpid()
        for text in self.config.warnings:
            log.warning(text)
        if self.config.request_id or self.config.slice:
            log.warning("request_id and slice have no effect in graph mode: tensors are read whole")
        atexit.register(self._at_exit)

    def _configure(self, file: TorchConfigFile) -> None:
        if "level" not in file.asked():
            file.overrides["level"] = "L0"
        self._followed = FollowedConfig(file)
        self.config = self._followed.config
        self._control = LiveControl(self._followed, self._why_fixed)
        self._bounds = StepBounds()
        for name, value, allowed in (("level", self.config.level, _LEVELS), ("task", self.config.task, _TASKS)):
            if value not in allowed:
                raise MsprobeError(f"{name} is {value!r}; of a graph it should be one of {', '.join(allowed)}")

    def start(
        self,
        model: torch.nn.Module | None = None,
        token_range: Any = None,
        rank_id: int | None = None,
        scheduled_tokens: Any = None,
    ) -> None:
        """Puts the probes in. Only the first call does; what it is given beside the model is for PrecisionDebugger."""
        del token_range, scheduled_tokens
        if self._plan is not None:
            return
        if not isinstance(model, torch.nn.Module):
            raise MsprobeError(f"model is {type(model).__name__}; it should be the torch.nn.Module that is captured")
        self._rank = rank_id if rank_id is not None else distributed_rank()
        if self.config.rank and self._rank not in self.config.rank:
            log.info(f"rank {self._rank} is not among {self.config.rank}: nothing is captured")
            return
        log.set_rank(self._rank)
        self._agent = open_agent(self.config, self._rank, lambda: None)
        self._followed.settle()
        self._control.announce(self._agent)
        self._plan = GraphPlan(self.config.extra_info, self._keeps_bytes)
        modules = [(name, module) for name, module in model.named_modules() if module is not model]
        each = 16 if self.config.level == "L0" else 64
        probes = 1024 + each * len(modules)
        for device in dict.fromkeys([torch.device("cpu"), *(tensor.device for tensor in _tensors(model))]):
            if device.type != "meta":
                table = _agent.make_probe_table(self._agent.recorder, device=str(device), probes=probes)
                self._plan.add_device(device, table)
        self._modules = ProbedModules(self._plan, self._wants("input"), self._wants("output"))
        names = {name: f"Module.{name}.{type(module).__name__}" for name, module in modules}
        if self.config.level in ("L0", "mix"):
            for name, module in modules:
                self._modules.wrap(module, names[name])
        self._modules.wrap_root(model)
        if self.config.level in ("L1", "mix"):
            for module in model.modules():
                self._modules.touch(module)
            from msprobe.pytorch._graph_operators import GraphOperators

            self._operators = GraphOperators(
                self._plan, self.config, names, self._wants("input"), self._wants("output")
            )
        self._turn(self._wanted())
        self._say()
        log.info("msprobe: AclGraphDumper.start() is set successfully")
        log.info(f"Dump data will be saved in {self.config.dump_path}.")

    def set_batch(self, requests: Sequence[tuple[str, int, int]]) -> None:
        """What the present step's replay computes: (request id, number of its tokens, position of the first) of each.

        In the batch's order, as their rows stand. step() records it beside what the probes found, and forgets it.
        """
        self._batch = [(request, tokens, first) for request, tokens, first in requests if tokens > 0]

    def step(self, dump: bool = True) -> None:
        """Reads what the probes found since the last step, as the records of this one. dump=False forgets it."""
        dump = arguments.boolean(dump, "dump")
        service = self.service
        step = service.current_iter = service.loop + service.init_step
        try:
            if self._plan is not None and self._agent is not None and os.getpid() == self._pid:
                self._end_step(step, dump and self._wanted())
        except Exception as error:  # the run goes on
            log.error(f"msprobe: step {step} is not captured: {error}")
        self._batch = []
        if dump:
            service.loop += 1
        flush_saves()
        if self._plan is not None:
            self._followed.look()
            self._control.obey(self._agent)
            if self._followed.take():
                self._reconfigure()
            self._turn(self._wanted())
            self._say()

    def wait(self, timeout: float = 60.0) -> bool:
        """Waits until what was captured is durable and, with an embedded server, the files are in place."""
        missing = self._agent.wait(timeout) if self._agent is not None else ""
        if missing:
            log.warning(missing)
        return not missing

    def set_init_step(self, step: int) -> None:
        """The next directory is step{step}."""
        self.service.init_step, self.service.loop = arguments.init_step(step), 0

    def _end_step(self, step: int, wanted: bool) -> None:
        assert self._plan is not None
        tables = list(self._plan.tables.values())
        self._plan.begin_pass()  # of a model that is not called by its root
        if self._rank is None and (rank := distributed_rank()) is not None:
            self._rank = rank
            log.set_rank(rank)
            self._agent.set_rank(rank)
        if wanted:
            self._read_parameters()
        ran = sum(table.gather() for table in tables)
        if not wanted or ran == 0:
            for table in tables:
                table.forget()
            return
        missed = _agent.emit_graph(self._agent.recorder, step, tables, self._plan.records())
        if missed and not self._missed_said:
            self._missed_said = True
            log.warning(
                f'{missed} calls that were traced did not run in step {step}: their records have "runs": 0 and no '
                "numbers"
            )
        row = 0
        for request, tokens, first in self._batch:
            _agent.note_tokens(
                self._agent.recorder, step=step, request=request, tokens=tokens, first_row=row, first_position=first
            )
            row += tokens
        self._agent.end_step(step, keep=True)
        self._bounds.note_step()
        self._control.end_step()

    def _reconfigure(self) -> None:
        """Other settings for the graphs that there are: what is read of each tensor, and which records are kept."""
        assert self._plan is not None
        self.config = self._followed.config
        self._agent.reconfigure(self.config)
        for table in self._plan.tables.values():
            table.set_recorder(self._agent.recorder)
        for (table_id, probe), (call, _) in self._plan.owners.items():
            table = next(table for table in self._plan.tables.values() if table.id == table_id)
            table.keep_bytes(probe, self._keeps_bytes(call.full_name))

    @staticmethod
    def _why_fixed(field: str, value: Any) -> str:
        if field in ("level", "data_mode", "request_id", "slice"):
            return f"{field} cannot be changed to {value!r}: probes stand in the graph as it was traced"
        return ""

    def _say(self) -> None:
        self._control.say(self._agent, self._on, self.service.loop + self.service.init_step)

    def _read_parameters(self) -> None:
        """On devices, those that may have changed: an inference tensor has no version, and is read once."""
        assert self._plan is not None and self._modules is not None
        for parameter, device, index in self._modules.parameters:
            version = 0 if parameter.is_inference() else parameter._version
            state = (parameter.data_ptr(), version)
            if self._parameters.get(index) == state and self.config.task != "tensor":
                continue
            self._parameters[index] = state
            table = self._plan.tables[device]
            torch.ops.msprobe.probe(parameter.detach(), table.slots, index, table.id)

    def _wants(self, direction: str) -> bool:
        mode = self.config.data_mode
        return mode == ["all"] or ("forward" in mode and direction in mode)

    def _keeps_bytes(self, full_name: str) -> bool:
        return self.config.task == "tensor" or any(part in full_name for part in self.config.tensor_list)

    def _wanted(self) -> bool:
        step = self.service.loop + self.service.init_step
        listed = not self.config.step or step in self.config.step
        chosen = (listed and self.config.scheduled(self.service.loop)) or self._control.forced
        bounded = (self._bounds.is_last(self.config) and not self._control.forced) or self._bounds.is_full(self._agent)
        return bool(self._followed.enabled and chosen and not bounded)

    def agent_for_replies(self) -> Any:
        """As Debugger.agent_for_replies: the agent that load_model has opened."""
        return self._agent if os.getpid() == self._pid else None

    def _turn(self, on: bool) -> None:
        if on == self._on:
            return
        self._on = on
        assert self._plan is not None
        for table in self._plan.tables.values():
            table.switch(on)

    def _at_exit(self) -> None:
        if self._agent is None or os.getpid() != self._pid:
            return
        leave(self._agent, self.config)
        self._agent = None


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


__all__ = ["AclGraphDumper"]

"""Modules whose forward reads its arguments and results by probes, in a form that torch.compile traces whole."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from msprobe.pytorch import _graph_plan as plans
from msprobe.pytorch._graph_plan import GraphPlan

_MAX_DEPTH = 4  # nesting of what is walked, as for eager calls


def _walk(plan: int, slots: Any, call: str, part: str, value: Any, depth: int) -> None:
    """Traced. Keeps to what every tracer knows: no exception handling, no class of ours."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "to_local"):
            value = value.to_local()
        index = plans.probe_number(plan, call, part, str(value.device), value.requires_grad)
        if index >= 0:
            held = slots[value.device]
            torch.ops.msprobe.probe(value, held[0], index, held[1])
    elif value is None or depth > _MAX_DEPTH:
        plans.field(plan, call, part, "none")
    elif isinstance(value, bool):
        plans.field(plan, call, part, "boolean", value)
    elif isinstance(value, str):
        plans.field(plan, call, part, "string", value)
    elif isinstance(value, (int, float)) and not torch.compiler.is_compiling():  # traced, it may stand for any number
        plans.number(plan, call, part, "integer" if isinstance(value, int) else "float", value)
    elif isinstance(value, (list, tuple)):
        plans.field(plan, call, part, "list")
        for item in value:
            _walk(plan, slots, call, part, item, depth + 1)
        plans.field(plan, call, part, "end")
    elif isinstance(value, dict):
        plans.field(plan, call, part, "dict")
        for key, item in value.items():
            if isinstance(key, str):
                plans.field(plan, call, part, "key", key)
                _walk(plan, slots, call, part, item, depth + 1)
        plans.field(plan, call, part, "end")
    else:
        plans.field(plan, call, part, "none")


def _walk_arguments(plan: int, slots: Any, call: str, args: Any, kwargs: Any) -> None:
    plans.field(plan, call, "enter", "key", "input_args")
    _walk(plan, slots, call, "enter", args, 0)
    plans.field(plan, call, "enter", "key", "input_kwargs")
    _walk(plan, slots, call, "enter", kwargs, 0)


def _walk_result(plan: int, slots: Any, call: str, result: Any) -> None:
    plans.field(plan, call, "exit", "key", "output")
    if isinstance(result, tuple):
        _walk(plan, slots, call, "exit", result, 0)
    else:
        _walk(plan, slots, call, "exit", [result], 0)


def _probed(plan: int, slots: Any, name: str, inputs: bool, outputs: bool, forward: Any, finish: Any) -> Any:
    @functools.wraps(forward)
    def probed(*args: Any, **kwargs: Any) -> Any:
        call = plans.enter(plan, name)
        if call and inputs:
            _walk_arguments(plan, slots, call, args, kwargs)
        result = forward(*args, **kwargs)
        if call and outputs:
            _walk_result(plan, slots, call, result)
        if call:
            finish(call)
            plans.leave(plan, call)
        return result

    return probed


def _touch(plan: int, slots: Any, value: Any, depth: int) -> None:
    """Traced. Makes the slots an input of the graph, so that probes can be put into it afterwards."""
    if isinstance(value, torch.Tensor):
        if plans.touch(plan, str(value.device)):
            held = slots[value.device]
            torch.ops.msprobe.probe(value, held[0], -1, held[1])
    elif isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
        for item in value:
            _touch(plan, slots, item, depth + 1)
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        for item in value.values():
            _touch(plan, slots, item, depth + 1)


def _touching(plan: int, slots: Any, forward: Any) -> Any:
    @functools.wraps(forward)
    def touching(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            _touch(plan, slots, args, 0)
            _touch(plan, slots, kwargs, 0)
        return forward(*args, **kwargs)

    return touching


def _root(plan: int, forward: Any) -> Any:
    @functools.wraps(forward)
    def root(*args: Any, **kwargs: Any) -> Any:
        plans.begin_pass(plan)
        return forward(*args, **kwargs)

    return root


class ProbedModules:
    """The modules that a dumper has put its wrappers around; for good, as graphs that hold them are."""

    def __init__(self, plan: GraphPlan, inputs: bool, outputs: bool) -> None:
        self._plan, self._inputs, self._outputs = plan, inputs, outputs
        # By device: the slots and the table's number, for traced code.
        self._slots = {device: (slots, plan.tables[device].id) for device, slots in plan.slots.items()}
        self.parameters: list[tuple[torch.nn.Parameter, torch.device, int]] = []  # on devices, with their probes

    def wrap(self, module: torch.nn.Module, name: str) -> None:
        forward = getattr(module, "forward", None)
        if forward is None or type(module).forward is torch.nn.Module.forward:  # a container: nobody calls it
            return
        finish = self._finish(module)
        module.forward = _probed(self._plan.number, self._slots, name, self._inputs, self._outputs, forward, finish)

    def touch(self, module: torch.nn.Module) -> None:
        """For level L1: nothing is read where modules begin and end, but the graph gets the slots."""
        if type(module).forward is not torch.nn.Module.forward:
            module.forward = _touching(self._plan.number, self._slots, module.forward)

    def wrap_root(self, module: torch.nn.Module) -> None:
        module.forward = _root(self._plan.number, module.forward)

    def _finish(self, module: torch.nn.Module) -> Callable[[str], bool]:
        """What adds the module's parameters to a call of it."""

        def parameters(full_name: str) -> bool:
            call = self._plan.calls[full_name]
            if not self._outputs:
                return False
            self._plan.add(call, "exit", ("key", "parameters"))
            self._plan.add(call, "exit", ("dict",))
            for key, parameter in module._parameters.items():
                if parameter is None:
                    continue
                self._plan.add(call, "exit", ("key", key))
                self._add_parameter(call, parameter)
            self._plan.add(call, "exit", ("end",))
            return True

        parameters._dynamo_marked_constant = True  # type: ignore[attr-defined]
        return parameters

    def _add_parameter(self, call: plans.Call, parameter: torch.nn.Parameter) -> None:
        device = parameter.device
        if device.type == "cpu" or device not in self._plan.tables:
            self._plan.add(call, "exit", ("tensor", parameter))
            return
        index = self._plan.probe(call, "exit", device, parameter.requires_grad)
        if index < 0:
            return
        table, fields = self._plan.tables[device], call.fields["exit"]
        fields[-1] = ("parameter", table, index, parameter.requires_grad)
        if not any(known[1:] == (device, index) for known in self.parameters):
            self.parameters.append((parameter, device, index))

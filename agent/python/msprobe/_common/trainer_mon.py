"""The part of TrainerMon that is every framework's: what is read when, and the files. Each derives its own."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Optional

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.monitor_files import Anomalies, MonitorFiles
from msprobe._common.monitor_json import FORMATS, TIME_FORMAT, MonitorJson, json_object

_SQUASHED = tuple(
    re.compile(rf"^.*\.({part}.*)") for part in (r"layers?\.", r"embeddings?\.", "final", "output", "norm")
)
_DIRECTORY = re.compile(r"([\w-]{0,20})-rank(\d{1,5})-")
MOMENTS = ("exp_avg", "exp_avg_sq")

Numbers = dict[str, dict[str, Any]]  # tag -> op -> value
Read = Callable[[Any], Optional[dict[str, Any]]]


class Monitor:
    """Numbers of a training run in csv files, as mindstudio-probe's TrainerMon writes them.

    A framework's class gives the methods of the first section below. Nothing raises into the training once set_monitor
    has returned: whoever calls the methods of the last section contains what they raise.
    """

    formats: tuple[str, ...] = FORMATS

    def __init__(
        self,
        config_file_path: str | os.PathLike[str],
        params_have_main_grad: bool,
        *,
        rank: int,
        pp_stage: int,
        group_mates: list[int],
    ) -> None:
        self.config_file_path = config_file_path
        self.params_have_main_grad = params_have_main_grad
        self.config = MonitorJson(config_file_path, self.formats)
        self.rank, self.pp_stage, self.group_mates = rank, pp_stage, group_mates
        base = Path(os.environ.get("MONITOR_OUTPUT_DIR") or "./monitor_output")
        self._base, self.output_dir = base, self._choose_directory(base)
        self.dynamic_enable = os.environ.get("DYNAMIC_MONITOR", "").lower() == "true"
        self.monitoring = False
        self.model: list[Any] = []
        self.micro_batch_number = 1
        self.step = 0
        self._optimizer: Any = None
        self._timestamp = 0.0
        self._cannot_write = False
        self._files: MonitorFiles | None = None
        self._reset()
        if not self.dynamic_enable:
            self._configure()

    # What a framework gives.

    def _watch_steps(self, optimizer: Any) -> None:
        """_begin_step and _end_step are called around each step of the optimizer from now on, as long as this lives."""
        raise NotImplementedError

    def _hook_parameters(self) -> None:
        """What is read of self._parameters and of calls between ranks is told, until _unhook_parameters."""
        raise NotImplementedError

    def _unhook_parameters(self) -> None:
        raise NotImplementedError

    def _hook_module(self, name: str, module: Any) -> Iterable[Any]:
        """Shows the module's calls to _read_values. Gives handles, each with a method remove."""
        raise NotImplementedError

    def _parameters_in(self, chunk: Any) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def _modules_in(self, chunk: Any) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def _numbers(self, tensor: Any) -> dict[str, Any]:
        """op -> value, of self.config.ops."""
        raise NotImplementedError

    def _is_tensor(self, value: Any) -> bool:
        raise NotImplementedError

    def _as_tensor(self, value: float) -> Any:
        raise NotImplementedError

    def _gradient(self, parameter: Any) -> Any:
        """As the optimizer takes it; None: there is none."""
        raise NotImplementedError

    def _moment(self, parameter: Any, name: str) -> Any:
        """One of MOMENTS, of the optimizer; None: it has none."""
        raise NotImplementedError

    def _collectives(self) -> Numbers:
        """Numbers of the step's calls between ranks."""
        return {}

    # What users call.

    def set_monitor(
        self,
        model: Any,
        optimizer: Any,
        grad_acc_steps: int = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """model: a module, or the chunks of a pipeline stage. grad_acc_steps: backward passes to one optimizer step.

        tp_group, dp_group: accepted; every rank writes its own numbers.
        """
        self.model = list(model) if isinstance(model, (list, tuple)) else [model]
        self._optimizer, self.micro_batch_number, self.step = optimizer, max(1, grad_acc_steps), start_iteration
        self._watch_steps(optimizer)
        if not self.dynamic_enable:
            self._hook()

    def generate_wgrad_metrics(self, post_grad_dict: Any = None) -> tuple[Numbers, Numbers]:
        """Numbers of the weights' gradients: as the optimizer takes them, and before reduction.

        post_grad_dict: tag -> gradient, read now and added.
        """
        for tag, grad in (post_grad_dict or {}).items():
            self._post[tag] = self._numbers(grad)
        return self._as_tensors(self._post), self._as_tensors(self._pre)

    def generate_xy_metrics(self) -> tuple[Numbers, Numbers]:
        """Numbers of activations and of their gradients."""
        activations = {tag: numbers for each in self._activations.values() for tag, numbers in each.items()}
        return self._as_tensors(activations), self._as_tensors(self._activation_grads)

    def _as_tensors(self, numbers: Numbers) -> Numbers:
        return {
            tag: {op: self._as_tensor(value) if isinstance(value, (int, float)) else value for op, value in ops.items()}
            for tag, ops in numbers.items()
        }

    # Writing.

    def _write(self) -> None:
        assert self._files is not None
        step, kinds = self.step, [("actv", each, True) for each in self._activations.values()]
        kinds.append(("actv_grad", self._activation_grads, True))
        kinds.append(("grad_unreduced", self._pre, self.config.monitor_mbs_grad))
        kinds.append(("grad_reduced", self._post, False))
        kinds += [(kind, numbers, False) for kind, numbers in self._moments.items()]
        kinds += [(kind, numbers, False) for kind, numbers in self._values.items()]
        kinds.append(("other", self._collectives(), False))
        for kind, numbers, has_micro_step in kinds:
            self._anomalies.look(numbers, step)
            self._files.write(kind, numbers, step, micro_step=has_micro_step)
        self._anomalies.write()
        self._anomalies.calls.clear()
        self._calls = 0
        self._collected += 1
        if self._collected >= self.config.collect_times:
            self._finish()

    def _writes(self) -> bool:
        return self._files is not None and self._takes_rank()

    def _takes_rank(self) -> bool:
        return not self.config.module_ranks or self.rank in self.config.module_ranks

    def _is_collected(self) -> bool:
        after = self.step - self._start_step
        return after >= 0 and after % self.config.step_interval == 0

    def _clear(self) -> None:
        self._pre: Numbers = {}
        self._post: Numbers = {}
        self._activations: dict[Any, Numbers] = {}  # by module, in the order of their calls
        self._activation_grads: Numbers = {}
        self._moments: dict[str, Numbers] = {moment: {} for moment in MOMENTS}
        self._values: dict[str, Numbers] = {"param_origin": {}, "param_updated": {}}

    # Configuration, hooks, and the file that is followed.

    def _reset(self) -> None:
        self._parameters: dict[str, Any] = {}
        self._forwards: dict[Any, int] = {}
        self._backwards: dict[Any, int] = {}
        self._handles: list[Any] = []
        self._calls = 0  # since the last step that was written
        self._clear()

    def _configure(self) -> None:
        self._start_step, self._collected = self.config.start_step, 0
        self._anomalies = Anomalies(self.config, self._base, self.rank, self.pp_stage, self.group_mates)
        if self._takes_rank():
            self._files = MonitorFiles(self.output_dir, self.config)

    def _hook(self) -> None:
        for index, chunk in enumerate(self.model):
            for name, parameter in self._parameters_in(chunk):
                if parameter.requires_grad and self._is_target(name, f"{index}:"):
                    squashed = f"{index}:{self._squash(name)}"
                    self._parameters[squashed if squashed not in self._parameters else f"{index}:{name}"] = parameter
            if self.config.xy_distribution and self._takes_rank():
                self._hook_modules(chunk, f"{index}:")
        self._hook_parameters()
        self.monitoring = True

    def _hook_modules(self, chunk: Any, prefix: str) -> None:
        for module_name, module in self._modules_in(chunk):
            name = self._module_name(module_name, prefix)
            if name is not None:
                self._handles += self._hook_module(name, module)

    def _module_name(self, name: str, prefix: str) -> str | None:
        squashed = prefix + self._squash(name)
        targets = self.config.targets
        if self.config.all_xy or not targets:
            return squashed
        named = [each for each in (squashed, prefix + name) if each in targets or each.partition(":")[2] in targets]
        return named[0] if named else None

    def _is_target(self, name: str, prefix: str) -> bool:
        names = (name, prefix + self._squash(name), prefix + name)
        return not self.config.targets or any(each.startswith(tuple(self.config.targets)) for each in names)

    def _squash(self, name: str) -> str:
        found = [match[1] for match in (part.match(name) for part in _SQUASHED) if match] if self._squashes() else []
        return found[0] if found else name

    def _squashes(self) -> bool:
        return bool(self.config.squash_name)

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._unhook_parameters()
        self.monitoring = False
        self._reset()

    def _finish(self) -> None:
        """collect_times steps were written."""
        if self.dynamic_enable:
            path = Path(self.config_file_path)
            try:
                path.write_text(json.dumps(json_object(path) | {"dynamic_on": False}, indent=2))
                self._timestamp = path.stat().st_mtime
            except (OSError, MsprobeError) as error:
                log.warning(f"dynamic_on stays what it is in the monitor's file: {error}")
        log.info("Finish monitor")
        self._unhook()

    def _follow_file(self) -> None:
        """DYNAMIC_MONITOR: the file is looked at after each step, and begins what it says where dynamic_on is true."""
        if not self.dynamic_enable:
            return
        try:
            timestamp = Path(self.config_file_path).stat().st_mtime
            if timestamp == self._timestamp:
                return
            self._timestamp = timestamp
            config = MonitorJson(self.config_file_path, self.formats)
        except (OSError, MsprobeError) as error:
            log.warning(f"the monitor goes on as before: {error}")
            return
        if config.dynamic_on:
            self._unhook()
            self.config = config
            self._configure()
            self._start_step = self.step
            log.warning(f"config is updated at step{self.step - 1}, will start new hook at step{self.step}.")
            self._hook()

    def _choose_directory(self, base: Path) -> Path:
        """append_output: the directory of this rank between two times, if there is one."""
        now = datetime.now(timezone(timedelta(hours=8)))
        times = self.config.append_output
        if times and base.is_dir():
            first, last = (datetime.strptime(each, TIME_FORMAT) for each in times)
            for directory in sorted(base.iterdir()):
                match = _DIRECTORY.match(directory.name)
                if match and int(match[2]) == self.rank and first <= datetime.strptime(match[1], TIME_FORMAT) <= last:
                    return directory
        return base / f"{now.strftime(TIME_FORMAT)}-rank{self.rank}-{uuid.uuid4().hex[:8]}"

    # What a framework's hooks call. These may raise.

    def _begin_step(self) -> None:
        """The optimizer is about to step."""
        if not self.monitoring or not self._is_collected():
            return
        for name, parameter in self._parameters.items():
            grad = self._gradient(parameter)
            if self.config.wg_distribution and grad is not None:
                tag = self._tag(name, "post_grad")
                self._note_call(tag)
                self._post[tag] = self._numbers(grad)
        for moment in MOMENTS if self.config.mv_distribution else ():
            for name, parameter in self._parameters.items():
                tag, value = self._tag(name, moment), self._moment(parameter, moment)
                self._note_call(tag)
                if value is not None:
                    self._moments[moment][tag] = self._numbers(value)
        self._read_parameters("param_origin")

    def _end_step(self) -> None:
        """It has stepped."""
        if self.monitoring:
            self._read_parameters("param_updated")
            if self._is_collected() and self._writes():
                self._write_if_possible()
            self._clear()
        self.step += 1
        self._follow_file()

    def _write_if_possible(self) -> None:
        """A directory that cannot be written may be there again at a later step. That is said once, until it is."""
        try:
            self._write()
            self._cannot_write = False
        except OSError as error:
            if not self._cannot_write:
                log.warning(f"the monitor cannot write all of step {self.step}, and tries again at later ones: {error}")
            self._cannot_write = True

    def _note_accumulation(self, name: str, micro_batch: int, gradient: Callable[[], Any]) -> None:
        """A backward pass has added to the gradient of a parameter. micro_batch: counted since the last step."""
        micro_step = micro_batch % self.micro_batch_number
        tag = f"{name}:{micro_step}" if self.config.monitor_mbs_grad else name
        tag = f"{tag}/rank{self.rank}/acc_grad"
        self._note_call(tag)
        is_last = micro_step + 1 == self.micro_batch_number
        if (self.config.monitor_mbs_grad or is_last) and self._is_collected():
            self._pre[tag] = self._numbers(gradient())

    def _read_forward(self, name: str, module: Any, inputs: list[Any], output: Any) -> None:
        micro = self._micro_step(self._forwards, module)
        into = self._activations.setdefault(module, {})
        self._read_values(into, f"{name}.input", micro, "actv", inputs, self._numbers)
        self._read_values(into, f"{name}.output", micro, "actv", output, self._numbers)

    def _read_backward(self, name: str, micro: int, grad_input: Any, grad_output: Any, read: Read) -> None:
        into = self._activation_grads
        self._read_values(into, f"{name}.input", micro, "actv_grad", grad_input, read)
        self._read_values(into, f"{name}.output", micro, "actv_grad", grad_output, read)

    def _read_values(self, into: Numbers, name: str, micro: int, kind: str, values: Any, read: Read) -> None:
        """read(value): its numbers; None: it is left out, and the others keep their places."""
        several: Sequence[Any] = [values] if self._is_tensor(values) else values
        if not isinstance(several, (list, tuple)):
            return
        for index, value in enumerate(several):
            part = name if len(several) == 1 else f"{name}_{index}"
            tag = self._tag(f"{part}:{micro}", kind)
            self._note_call(tag)
            numbers = read(value) if self._is_collected() else None
            if numbers is not None:
                into[tag] = numbers

    def _read_parameters(self, kind: str) -> None:
        if self.config.param_distribution and self._is_collected():
            for name, parameter in self._parameters.items():
                if parameter.numel():
                    self._values[kind][self._tag(name, kind)] = self._numbers(parameter)

    def _micro_step(self, counts: dict[Any, int], module: Any) -> int:
        count = counts.get(module, 0)
        counts[module] = (count + 1) % self.micro_batch_number
        return count

    def _note_call(self, tag: str) -> None:
        self._anomalies.calls[tag] = self._calls
        self._calls += 1

    def _tag(self, name: str, kind: str) -> str:
        return f"{name}/rank{self.rank}/{kind}"


__all__ = ["MOMENTS", "Monitor", "Numbers"]

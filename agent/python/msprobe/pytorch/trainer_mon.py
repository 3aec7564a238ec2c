"""TrainerMon of mindstudio-probe: numbers of a training run in csv files, by the agent's kernel."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.monitor_files import Anomalies, MonitorFiles
from msprobe._common.monitor_json import MonitorJson
from msprobe._common.tensor_numbers import tensor_numbers
from msprobe.pytorch._communication_numbers import CommunicationNumbers
from msprobe.pytorch._training_watch import TrainingWatch

_SQUASHED = tuple(
    re.compile(rf"^.*\.({part}.*)") for part in (r"layers?\.", r"embeddings?\.", "final", "output", "norm")
)
_DIRECTORY = re.compile(r"([\w-]{0,20})-rank(\d{1,5})-")
_TIME = "%b%d_%H-%M-%S"

Numbers = dict[str, dict[str, Any]]  # tag -> op -> value


class TrainerMon:
    """Watches one model and its optimizer. config_file_path: docs/monitoring.md says which fields have an effect.

    Nothing raises into the training once set_monitor has returned.
    """

    def __init__(
        self,
        config_file_path: str | os.PathLike[str],
        process_group: Any = None,
        params_have_main_grad: bool = True,
        opt_ty: Any = None,
    ) -> None:
        self.config_file_path = config_file_path
        self.params_have_main_grad = params_have_main_grad
        self.config = MonitorJson(config_file_path)
        dist = torch.distributed
        is_distributed = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if is_distributed else 0
        group = process_group or (dist.group.WORLD if is_distributed else None)
        self.pp_stage = dist.get_group_rank(group, self.rank) if is_distributed else 0
        self.group_mates = dist.get_process_group_ranks(group) if is_distributed else [0]
        base = Path(os.environ.get("MONITOR_OUTPUT_DIR") or "./monitor_output")
        self._base, self.output_dir = base, self._choose_directory(base)
        self.dynamic_enable = os.environ.get("DYNAMIC_MONITOR", "").lower() == "true"
        self.monitoring = False
        self.model: list[torch.nn.Module] = []
        self.micro_batch_number = 1
        self.step = 0
        self._optimizer: Any = None
        self._watch: TrainingWatch | None = None
        self._communication: CommunicationNumbers | None = None
        self._timestamp = 0.0
        self._files: MonitorFiles | None = None
        self._reset()
        if not self.dynamic_enable:
            self._configure()

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
        self._steps = TrainingWatch(self, accumulation=False, clipping=False)
        self._steps.add_model(self._parameters_of(optimizer))
        self._steps.add_optimizer(optimizer)
        if not self.dynamic_enable:
            self._hook()

    def set_wrapped_optimizer(self, optimizer: Any) -> None:
        """For monitor_gnorm_with_ad."""
        self._optimizer = optimizer

    def monitor_gnorm_with_ad(
        self,
        model: Any,
        optimizer: Any = None,
        grad_acc_steps: int = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """The older name of set_monitor."""
        if optimizer is None and self._optimizer is None:
            raise MsprobeError(
                "monitor_gnorm_with_ad: optimizer is missing; call set_wrapped_optimizer before, or give it"
            )
        self.set_monitor(model, optimizer or self._optimizer, grad_acc_steps, tp_group, dp_group, start_iteration)

    def generate_wgrad_metrics(self, post_grad_dict: Any = None) -> tuple[Numbers, Numbers]:
        """Numbers of the weights' gradients: as the optimizer takes them, and before reduction.

        post_grad_dict: tag -> gradient, read now and added.
        """
        for tag, grad in (post_grad_dict or {}).items():
            self._post[tag] = self._numbers(grad)
        return _as_tensors(self._post), _as_tensors(self._pre)

    def generate_xy_metrics(self) -> tuple[Numbers, Numbers]:
        """Numbers of activations and of their gradients."""
        activations = {tag: numbers for each in self._activations.values() for tag, numbers in each.items()}
        return _as_tensors(activations), _as_tensors(self._activation_grads)

    # What the watch shows. `_steps` watches as long as this lives; `_watch` only while something is monitored.

    def accumulated(self, name: str, parameter: torch.nn.Parameter, micro_batch: int) -> None:
        micro_step = micro_batch % self.micro_batch_number
        tag = f"{name}:{micro_step}" if self.config.monitor_mbs_grad else name
        tag = f"{tag}/rank{self.rank}/acc_grad"
        self._note_call(tag)
        if self.config.monitor_mbs_grad or micro_step + 1 == self.micro_batch_number:
            self._pre[tag] = self._numbers(self._gradient(parameter))

    def clipping(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        """Nothing is known of it here."""

    def stepping(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        if not self.monitoring or not self._is_collected():
            return
        config = self.config
        for name, parameter in self._parameters.items():
            grad = self._gradient(parameter)
            if config.wg_distribution and grad is not None:
                tag = self._tag(name, "post_grad")
                self._note_call(tag)
                self._post[tag] = self._numbers(grad)
        for moment in ("exp_avg", "exp_avg_sq") if config.mv_distribution else ():
            for name, parameter in self._parameters.items():
                tag, value = self._tag(name, moment), optimizer.state.get(parameter, {}).get(moment)
                self._note_call(tag)
                if value is not None:
                    self._moments[moment][tag] = self._numbers(value)
        self._read_parameters("param_origin")

    def stepped(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        if self.monitoring:
            self._read_parameters("param_updated")
            if self._is_collected() and self._writes():
                self._write()
            self._clear()
        self.step += 1
        self._follow_file()

    def skipped(self, optimizer: Any) -> None:
        """The tool sees nothing of it either."""

    # Reading.

    def _numbers(self, tensor: Any) -> dict[str, Any]:
        return tensor_numbers(tensor, self.config.ops, self.config.eps)

    def _gradient(self, parameter: torch.nn.Parameter) -> Any:
        return parameter.main_grad if self.params_have_main_grad else parameter.grad

    def _read_parameters(self, kind: str) -> None:
        if self.config.param_distribution:
            for name, parameter in self._parameters.items():
                if parameter.numel():
                    self._values[kind][self._tag(name, kind)] = self._numbers(parameter)

    def _after_forward(self, name: str, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if not module.training or torch._C._current_graph_task_id() != -1:  # the second forward of checkpointing
            return
        micro = self._micro_step(self._forwards, module)
        inputs = [each for each in [*args, *kwargs.values()] if torch.is_tensor(each)]
        into = self._activations.setdefault(module, {})
        self._read_values(into, f"{name}.input", micro, "actv", inputs)
        self._read_values(into, f"{name}.output", micro, "actv", output)

    def _after_backward(self, name: str, module: Any, grad_input: Any, grad_output: Any) -> None:
        micro = self._micro_step(self._backwards, module)
        self._read_values(self._activation_grads, f"{name}.input", micro, "actv_grad", grad_input)
        self._read_values(self._activation_grads, f"{name}.output", micro, "actv_grad", grad_output)

    def _read_values(self, into: Numbers, name: str, micro: int, kind: str, values: Any) -> None:
        several: Sequence[Any] = [values] if torch.is_tensor(values) else values
        if not isinstance(several, (list, tuple)):
            return
        for index, value in enumerate(several):
            part = name if len(several) == 1 else f"{name}_{index}"
            tag = self._tag(f"{part}:{micro}", kind)
            self._note_call(tag)
            into[tag] = self._numbers(value)

    def _micro_step(self, counts: dict[Any, int], module: Any) -> int:
        count = counts.get(module, 0)
        counts[module] = (count + 1) % self.micro_batch_number
        return count

    def _note_call(self, tag: str) -> None:
        self._anomalies.calls[tag] = self._calls
        self._calls += 1

    def _tag(self, name: str, kind: str) -> str:
        return f"{name}/rank{self.rank}/{kind}"

    # Writing.

    def _write(self) -> None:
        assert self._files is not None
        step, kinds = self.step, [("actv", each, True) for each in self._activations.values()]
        kinds.append(("actv_grad", self._activation_grads, True))
        kinds.append(("grad_unreduced", self._pre, self.config.monitor_mbs_grad))
        kinds.append(("grad_reduced", self._post, False))
        kinds += [(kind, numbers, False) for kind, numbers in self._moments.items()]
        kinds += [(kind, numbers, False) for kind, numbers in self._values.items()]
        if self._communication is not None:
            kinds.append(("other", self._communication.take(), False))
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
        return self._files is not None and (not self.config.module_ranks or self.rank in self.config.module_ranks)

    def _is_collected(self) -> bool:
        after = self.step - self._start_step
        return after >= 0 and after % self.config.step_interval == 0

    def _clear(self) -> None:
        self._pre: Numbers = {}
        self._post: Numbers = {}
        self._activations: dict[Any, Numbers] = {}  # by module, in the order of their calls
        self._activation_grads: Numbers = {}
        self._moments: dict[str, Numbers] = {"exp_avg": {}, "exp_avg_sq": {}}
        self._values: dict[str, Numbers] = {"param_origin": {}, "param_updated": {}}

    # Configuration, hooks, and the file that is followed.

    def _reset(self) -> None:
        self._parameters: dict[str, torch.nn.Parameter] = {}
        self._forwards: dict[Any, int] = {}
        self._backwards: dict[Any, int] = {}
        self._handles: list[Any] = []
        self._calls = 0  # since the last step that was written
        self._clear()

    def _configure(self) -> None:
        self._start_step, self._collected = self.config.start_step, 0
        self._anomalies = Anomalies(self.config, self._base, self.rank, self.pp_stage, self.group_mates)
        if not self.config.module_ranks or self.rank in self.config.module_ranks:
            self._files = MonitorFiles(self.output_dir, self.config)

    def _hook(self) -> None:
        self._watch = TrainingWatch(self, accumulation=self.config.wg_distribution, clipping=False)
        for index, chunk in enumerate(self.model):
            for name, parameter in chunk.named_parameters():
                if parameter.requires_grad and self._is_target(name, f"{index}:"):
                    squashed = f"{index}:{self._squash(name)}"
                    self._parameters[squashed if squashed not in self._parameters else f"{index}:{name}"] = parameter
            if self.config.xy_distribution and self._takes_rank():
                self._hook_modules(chunk, f"{index}:")
        self._watch.add_model(self._parameters.items())
        dist, fields = torch.distributed, self.config.cc_distribution
        if fields.get("enable") and dist.is_available() and dist.is_initialized() and self._takes_rank():
            self._communication = CommunicationNumbers(fields, self.config.ops, self.config.eps, self.rank)
        self.monitoring = True

    def _hook_modules(self, chunk: torch.nn.Module, prefix: str) -> None:
        for module_name, module in chunk.named_modules():
            name = self._module_name(module_name, prefix)
            if name is None or type(module).__name__ == "FullyShardedDataParallel":
                continue
            if not self.config.backward_only:
                hook = _contained(lambda *given, name=name: self._after_forward(name, *given))
                self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
            if not self.config.forward_only:
                hook = _contained(lambda *given, name=name: self._after_backward(name, *given))
                self._handles.append(module.register_full_backward_hook(hook))

    def _takes_rank(self) -> bool:
        return not self.config.module_ranks or self.rank in self.config.module_ranks

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
        found = (
            [match[1] for match in (part.match(name) for part in _SQUASHED) if match] if self.config.squash_name else []
        )
        return found[0] if found else name

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        if self._watch is not None:
            self._watch.close()
        if self._communication is not None:
            self._communication.close()
            self._communication = None
        self.monitoring = False
        self._reset()

    def _finish(self) -> None:
        """collect_times steps were written."""
        if self.dynamic_enable:
            path = Path(self.config_file_path)
            path.write_text(json.dumps(json.loads(path.read_text()) | {"dynamic_on": False}, indent=2))
            self._timestamp = path.stat().st_mtime
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
            config = MonitorJson(self.config_file_path)
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

    def _parameters_of(self, optimizer: Any) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, parameter) for chunk in self.model for name, parameter in chunk.named_parameters()]

    def _choose_directory(self, base: Path) -> Path:
        """append_output: the directory of this rank between two times, if there is one."""
        now = datetime.now(timezone(timedelta(hours=8)))
        times = self.config.append_output
        if times and base.is_dir():
            first, last = (datetime.strptime(each, _TIME) for each in times)
            for directory in sorted(base.iterdir()):
                match = _DIRECTORY.match(directory.name)
                if match and int(match[2]) == self.rank and first <= datetime.strptime(match[1], _TIME) <= last:
                    return directory
        return base / f"{now.strftime(_TIME)}-rank{self.rank}-{uuid.uuid4().hex[:8]}"


def _contained(hook: Any) -> Any:
    def contained(*given: Any) -> None:
        try:
            hook(*given)
        except Exception as error:
            log.warning(f"TrainerMon: {type(error).__name__}: {error}")

    return contained


def _as_tensors(numbers: Numbers) -> Numbers:
    return {
        tag: {op: torch.tensor(value) if isinstance(value, (int, float)) else value for op, value in values.items()}
        for tag, values in numbers.items()
    }


__all__ = ["TrainerMon"]

"""TrainerMonitorV2 of mindstudio-probe: numbers of modules, gradients, optimizer and parameters in csv files."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.tensor_numbers import narrowed
from msprobe.pytorch._communication_numbers import CommunicationNumbers
from msprobe.pytorch._tensor_numbers import tensor_numbers
from msprobe.pytorch._training_watch import TrainingWatch, unwrapped

_FRAMEWORKS = {"pytorch": "pytorch", "pt": "pytorch", "torch": "pytorch", "mindspore": "mindspore", "ms": "mindspore"}
_OPS = ("min", "max", "mean", "norm", "nans")
_KINDS = ("module", "weight_grad", "optimizer", "param", "cc")

Row = dict[str, Any]


class TrainerMonitorV2:
    """Watches a model and its optimizer between start() and stop(). docs/monitoring.md says what has an effect.

    A step ends when the optimizer has stepped, or with step() where no optimizer was given or patch_optimizer_step is
    false.
    """

    def __init__(self, config_path: str | os.PathLike[str], fr: str | None = None) -> None:
        try:
            self.config = json.loads(Path(config_path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MsprobeError(f"{config_path}: {error}") from None
        if not isinstance(self.config, dict):
            raise MsprobeError(f"{config_path} holds a {type(self.config).__name__}; it should be a JSON object")
        asked = str(fr or self.config.get("framework", "pytorch")).strip().lower()
        if _FRAMEWORKS.get(asked) != "pytorch":
            why = "is for MindSpore, for which there is TrainerMon" if asked in _FRAMEWORKS else "is unknown"
            raise MsprobeError(f"framework is {asked!r}, which {why}; it should be pytorch, pt or torch")
        if (written := str(self.config.get("format", "csv")).strip().lower()) != "csv":
            raise ValueError(f"format is {written!r}; it should be 'csv'")
        if self.config.get("async_write"):
            log.warning("async_write has no effect: files are written at the end of the step")
        dist = torch.distributed
        self.rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        ranks = self.config.get("rank", [])
        self._ranks = {ranks} if isinstance(ranks, int) else set(ranks)
        self.start_step = self._number("start_step", 0, 0)
        self.step_interval = self._number("step_interval", 1, 1)
        self.step_count_per_record = self._number("step_count_per_record", 1, 1)
        self.collect_times = self._number("collect_times", 100_000_000, 1)
        last = self.start_step + self.collect_times * self.step_interval
        self.stop_step = self._number("stop_step", last, self.start_step)
        self.output_dir = Path(self.config.get("output_dir", "./"))
        self.current_step = 0
        self._collected = 0
        self._monitors = {
            kind: fields
            for kind, fields in self.config.get("monitors", {}).items()
            if isinstance(fields, dict) and fields.get("enabled", kind == "module") and self._is_known(kind)
        }
        self._ops = {kind: _ops_of(fields.get("ops")) for kind, fields in self._monitors.items()}
        self._rows: dict[str, list[Row]] = {kind: [] for kind in self._monitors}
        self._handles: list[Any] = []
        self._watch: TrainingWatch | None = None
        self._communication: CommunicationNumbers | None = None
        self._optimizer: Any = None
        self._parameters: dict[str, torch.nn.Parameter] = {}
        self._told = False

    def start(self, model: Any = None, optimizer: Any = None, **context: Any) -> None:
        """model: a module, or a list of them. optimizer: needed for all but modules. context: grad_acc_steps or
        micro_batch_number, the backward passes to one step."""
        if self._ranks and self.rank not in self._ranks:
            return
        needed = [kind for kind in ("weight_grad", "optimizer", "param") if kind in self._monitors]
        if (self._monitors and model is None) or (needed and optimizer is None):
            raise ValueError(f"model and optimizer must be given for the monitors {', '.join(self._monitors)}")
        self._optimizer = None if optimizer is None else unwrapped(optimizer)
        several = isinstance(model, (list, tuple))
        chunks = [(f"{index}:", each) for index, each in enumerate(model)] if several else [("", model)]
        self._parameters = {prefix + name: each for prefix, chunk in chunks for name, each in chunk.named_parameters()}
        if "module" in self._monitors:
            for prefix, chunk in chunks:
                self._hook_modules(prefix, chunk)
        gradients = self._monitors.get("weight_grad", {})
        micro = [
            gradients.get("micro_batch_number"),
            gradients.get("grad_acc_steps"),
            *map(context.get, ("micro_batch_number", "grad_acc_steps")),
        ]
        self._micro_batches = next((int(each) for each in micro if each), 1)
        self._watch = TrainingWatch(self, accumulation="weight_grad" in self._monitors, clipping=False)
        self._watch.add_model(self._parameters.items())
        if optimizer is not None:
            self._watch.add_optimizer(optimizer)
        dist, fields = torch.distributed, self._monitors.get("cc")
        if fields is not None and dist.is_available() and dist.is_initialized():
            fields = fields.get("cc_distribution", fields)
            if not fields.get("module_ranks") or self.rank in fields["module_ranks"]:
                self._communication = CommunicationNumbers(fields, self._ops["cc"], 1e-8, self.rank)

    def step(self, from_optimizer: bool = False) -> None:
        """Ends the step and writes it."""
        if self._watch is None:
            return
        if self._steps_with_optimizer and not from_optimizer:
            if not self._told:
                log.warning("step() is ignored, as the optimizer ends steps; patch_optimizer_step false changes that")
            self._told = True
            return
        step = self.current_step
        try:
            if self._is_collected(step):
                self._read_moments()
                self._take_communication()
                for kind, rows in self._rows.items():
                    self._write(kind, rows, step)
                self._collected += 1
        except Exception as error:  # a full disk, say: the training goes on
            log.warning(f"TrainerMonitorV2: step {step} is not written: {type(error).__name__}: {error}")
        finally:
            for rows in self._rows.values():
                rows.clear()
            self.current_step = step + 1

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._communication is not None:
            self._communication.close()
            self._communication = None

    # What the watch shows.

    def accumulated(self, name: str, parameter: torch.nn.Parameter, micro_batch: int) -> None:
        micro = micro_batch % self._micro_batches + 1
        every = self._monitors["weight_grad"].get("monitor_mbs_grad") is True
        if every or micro == self._micro_batches:
            self._read("weight_grad", name, "unreduced", _gradient(parameter), micro_step=micro)

    def clipping(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        """Nothing is known of it here."""

    def stepping(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        for name, parameter in self._parameters.items():
            grad = _gradient(parameter)
            if grad is not None and "weight_grad" in self._monitors:
                self._read("weight_grad", name, "reduced", grad, micro_step=self._micro_batches)
        self._read_parameters("param_origin")

    def stepped(self, optimizer: Any, parameters: dict[str, torch.nn.Parameter]) -> None:
        self._read_parameters("param_updated")
        if self._steps_with_optimizer:
            self.step(from_optimizer=True)

    def skipped(self, optimizer: Any) -> None:
        """The tool sees nothing of it either."""

    # Reading.

    def _hook_modules(self, prefix: str, chunk: torch.nn.Module) -> None:
        targets = self._monitors["module"].get("targets", [])
        for module_name, module in chunk.named_modules():
            name = prefix + module_name
            if targets and not any(target in name for target in targets):
                continue
            self._handles += [
                module.register_forward_pre_hook(self._before_forward(name), with_kwargs=True),
                module.register_forward_hook(self._after_forward(name)),
                module.register_full_backward_hook(self._after_backward(name)),
            ]

    def _before_forward(self, name: str) -> Callable[..., None]:
        return lambda _module, args, kwargs: self._read_values(name, "input", (*args, *kwargs.values()), "forward")

    def _after_forward(self, name: str) -> Callable[..., None]:
        return lambda _module, _args, output: self._read_values(name, "output", output, "forward")

    def _after_backward(self, name: str) -> Callable[..., None]:
        def hook(_module: Any, grad_input: Any, grad_output: Any) -> None:
            self._read_values(name, "grad_input", grad_input, "backward")
            self._read_values(name, "grad_output", grad_output, "backward")

        return hook

    def _read_values(self, name: str, part: str, values: Any, scope: str) -> None:
        several = [values] if torch.is_tensor(values) else values
        if isinstance(several, (list, tuple)):
            for index, value in enumerate(each for each in several if torch.is_tensor(each)):
                self._read("module", f"{name}.{part}.{index}", scope, value)

    def _read_parameters(self, scope: str) -> None:
        if "param" in self._monitors and self._monitors["param"].get("param_distribution", True):
            for name, parameter in self._parameters.items():
                if parameter.numel():
                    self._read("param", name, scope, parameter)

    def _read_moments(self) -> None:
        if "optimizer" in self._monitors and self._monitors["optimizer"].get("mv_distribution", True):
            for moment in ("exp_avg", "exp_avg_sq"):
                for name, parameter in self._parameters.items():
                    value = self._optimizer.state.get(parameter, {}).get(moment)
                    if value is not None:
                        self._read("optimizer", f"{name}.{moment}", moment, value)

    def _take_communication(self) -> None:
        for tag, numbers in self._communication.take().items() if self._communication is not None else ():
            self._add_row("cc", tag, "comm", numbers)

    def _read(self, kind: str, name: str, scope: str, tensor: torch.Tensor, **more: Any) -> None:
        if not self._is_collected(self.current_step):
            return
        try:
            numbers = tensor_numbers(tensor, self._ops[kind], 1e-8)
        except Exception as error:
            log.warning(f"TrainerMonitorV2: {name}: {type(error).__name__}: {error}")
            return
        self._add_row(kind, name, scope, numbers, **more)

    def _add_row(self, kind: str, name: str, scope: str, numbers: dict[str, Any], **more: Any) -> None:
        stage: Any = int(name.split(":")[0]) if ":" in name else -1
        if kind == "cc":
            stage = None
        row = {"vpp_stage": stage, "step": self.current_step, "module_name": name, "scope": scope}
        self._rows[kind].append(row | more | {op: narrowed(value) for op, value in numbers.items()})

    # Steps and files.

    @property
    def _steps_with_optimizer(self) -> bool:
        return self._optimizer is not None and bool(self.config.get("patch_optimizer_step", True))

    def _is_collected(self, step: int) -> bool:
        is_inside = self.start_step <= step < self.stop_step and self._collected < self.collect_times
        return is_inside and (step - self.start_step) % self.step_interval == 0

    def _write(self, kind: str, rows: list[Row], step: int) -> None:
        if not rows:
            return
        directory = self.output_dir / f"rank_{self.rank}"
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        count = self.step_count_per_record
        first = self.start_step + (step - self.start_step) // count * count
        path = directory / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', kind)}_step{first}-{first + count - 1}.csv"
        is_new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            if is_new:
                writer.writeheader()
            writer.writerows(rows)

    def _number(self, name: str, default: int, least: int) -> int:
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            log.warning(f"{name} is {value!r}; it should be an int of at least {least}: {default} is taken")
            return default
        return value

    @staticmethod
    def _is_known(kind: str) -> bool:
        if kind not in _KINDS:
            log.warning(f"monitor {kind!r} is unknown; it should be one of {', '.join(_KINDS)}")
        return kind in _KINDS


def _ops_of(asked: Iterable[str] | None) -> list[str]:
    requested = [asked] if isinstance(asked, str) else list(asked or _OPS)
    unknown = [op for op in requested if op not in _OPS]
    if unknown:
        log.warning(f"ops {unknown} are left out; they should be among {', '.join(_OPS)}")
    return [op for op in requested if op in _OPS] or list(_OPS)


def _gradient(parameter: torch.nn.Parameter) -> Any:
    grad = getattr(parameter, "main_grad", None)
    return parameter.grad if grad is None else grad


__all__ = ["TrainerMonitorV2"]

"""The part of TrainerMonitorV2 that is every framework's: its configuration, what is read when, and the files."""

from __future__ import annotations

import csv
import importlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.monitor_json import json_object
from msprobe._common.tensor_numbers import narrowed

EPS = 1e-8
_FRAMEWORKS = {"pytorch": "pytorch", "pt": "pytorch", "torch": "pytorch", "mindspore": "mindspore", "ms": "mindspore"}
_OPS = ("min", "max", "mean", "norm", "nans")
_KINDS = ("module", "weight_grad", "optimizer", "param", "cc")

Row = dict[str, Any]


class TrainerMonitorV2:
    """Watches a model and its optimizer between start() and stop(). docs/monitoring.md says what has an effect.

    A step ends when the optimizer has stepped, or with step() where no optimizer was given or patch_optimizer_step is
    false. What is made is an instance of the framework's class, which gives the methods of the first section below.
    """

    framework: str | None = None  # of the class

    def __new__(cls, config_path: str | os.PathLike[str], fr: str | None = None) -> TrainerMonitorV2:
        """fr: the framework; None: the configuration's field framework has it, PyTorch by default."""
        if cls is TrainerMonitorV2:
            framework = _FRAMEWORKS[_asked_framework(json_object(config_path), fr, "pytorch")]
            cls = importlib.import_module(f"msprobe.{framework}.trainer_monitor_v2").TrainerMonitorV2
        return super().__new__(cls)

    def __init__(self, config_path: str | os.PathLike[str], fr: str | None = None) -> None:
        self.config = json_object(config_path)
        asked = _asked_framework(self.config, fr, self.framework)
        if _FRAMEWORKS[asked] != self.framework:
            raise MsprobeError(
                f"framework is {asked!r}, and this is the TrainerMonitorV2 of msprobe.{self.framework}; import that of "
                "msprobe.core.monitor_v2, which is for each"
            )
        if (written := str(self.config.get("format", "csv")).strip().lower()) != "csv":
            raise ValueError(f"format is {written!r}; it should be 'csv'")
        if self.config.get("async_write"):
            log.warning("async_write has no effect: files are written at the end of the step")
        self.rank = self._own_rank()
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
        self._optimizer: Any = None
        self._parameters: dict[str, Any] = {}
        self._is_watching = False
        self._told = False

    # What a framework gives.

    def _own_rank(self) -> int:
        raise NotImplementedError

    def _unwrapped(self, optimizer: Any) -> Any:
        """The framework's own. MsprobeError: there is none."""
        raise NotImplementedError

    def _watch(self, optimizer: Any) -> None:
        """_begin_step and _end_step are called around each step of the optimizer, if there is one, and with the monitor
        weight_grad _note_accumulation, until _unwatch."""
        raise NotImplementedError

    def _unwatch(self) -> None:
        raise NotImplementedError

    def _watch_collectives(self, fields: dict[str, Any]) -> None:
        """Calls between ranks, until _unwatch."""
        raise NotImplementedError

    def _collectives(self) -> dict[str, dict[str, Any]]:
        """tag -> op -> value, of the step's calls between ranks."""
        return {}

    def _hook_module(self, name: str, module: Any) -> Iterable[Any]:
        """Shows the module's calls to _read_values. Gives handles, each with a method remove."""
        raise NotImplementedError

    def _finish_calls(self) -> None:
        """Nothing further of the step's calls of modules comes."""

    def _parameters_in(self, chunk: Any) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def _modules_in(self, chunk: Any) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def _numbers(self, kind: str, tensor: Any) -> dict[str, Any]:
        """op -> value, of self._ops[kind]."""
        raise NotImplementedError

    def _is_tensor(self, value: Any) -> bool:
        raise NotImplementedError

    def _gradient(self, parameter: Any) -> Any:
        """As the optimizer takes it; None: there is none."""
        raise NotImplementedError

    def _moment(self, parameter: Any, name: str) -> Any:
        """exp_avg or exp_avg_sq of the optimizer; None: it has none."""
        raise NotImplementedError

    # What users call.

    def start(self, model: Any = None, optimizer: Any = None, **context: Any) -> None:
        """model: a module, or a list of them. optimizer: needed for all but modules. context: grad_acc_steps or
        micro_batch_number, the backward passes to one step."""
        if self._ranks and self.rank not in self._ranks:
            return
        needed = [kind for kind in ("weight_grad", "optimizer", "param") if kind in self._monitors]
        if (self._monitors and model is None) or (needed and optimizer is None):
            raise ValueError(f"model and optimizer must be given for the monitors {', '.join(self._monitors)}")
        self._optimizer = None if optimizer is None else self._unwrapped(optimizer)
        several = isinstance(model, (list, tuple))
        chunks = [(f"{index}:", each) for index, each in enumerate(model)] if several else [("", model)]
        self._parameters = {
            prefix + name: each for prefix, chunk in chunks for name, each in self._parameters_in(chunk)
        }
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
        self._watch(optimizer)
        fields = self._monitors.get("cc")
        if fields is not None:
            fields = fields.get("cc_distribution", fields)
            if not fields.get("module_ranks") or self.rank in fields["module_ranks"]:
                self._watch_collectives(fields)
        self._is_watching = True

    def step(self, from_optimizer: bool = False) -> None:
        """Ends the step and writes it."""
        if not self._is_watching:
            return
        if self._steps_with_optimizer and not from_optimizer:
            if not self._told:
                log.warning("step() is ignored, as the optimizer ends steps; patch_optimizer_step false changes that")
            self._told = True
            return
        step = self.current_step
        try:
            self._finish_calls()
            if self._is_collected():
                self._read_moments()
                for tag, numbers in self._collectives().items():
                    self._add_row("cc", tag, "comm", numbers)
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
        """What was read of the step that is under way is not written."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._is_watching:
            self._finish_calls()
            self._unwatch()
        for rows in self._rows.values():
            rows.clear()
        self._is_watching = False

    # What a framework's hooks call.

    def _note_accumulation(self, name: str, micro_batch: int, gradient: Callable[[], Any]) -> None:
        """A backward pass has added to the gradient of a parameter. micro_batch: counted since the last step."""
        micro = micro_batch % self._micro_batches + 1
        every = self._monitors["weight_grad"].get("monitor_mbs_grad") is True
        if every or micro == self._micro_batches:
            self._read("weight_grad", name, "unreduced", gradient(), micro_step=micro)

    def _begin_step(self) -> None:
        """The optimizer is about to step."""
        for name, parameter in self._parameters.items() if "weight_grad" in self._monitors else ():
            grad = self._gradient(parameter)
            if grad is not None:
                self._read("weight_grad", name, "reduced", grad, micro_step=self._micro_batches)
        self._read_parameters("param_origin")

    def _end_step(self) -> None:
        """It has stepped."""
        self._read_parameters("param_updated")
        if self._steps_with_optimizer:
            self.step(from_optimizer=True)

    def _read_values(self, name: str, part: str, values: Any, scope: str) -> None:
        several = [values] if self._is_tensor(values) else values
        if isinstance(several, (list, tuple)):
            for index, value in enumerate(each for each in several if self._is_tensor(each)):
                self._read("module", f"{name}.{part}.{index}", scope, value)

    def _add_row(self, kind: str, name: str, scope: str, numbers: dict[str, Any], **more: Any) -> None:
        stage: Any = int(name.split(":")[0]) if ":" in name else -1
        if kind == "cc":
            stage = None
        row = {"vpp_stage": stage, "step": self.current_step, "module_name": name, "scope": scope}
        self._rows[kind].append(row | more | {op: narrowed(value) for op, value in numbers.items()})

    def _is_collected(self) -> bool:
        step = self.current_step
        is_inside = self.start_step <= step < self.stop_step and self._collected < self.collect_times
        return is_inside and (step - self.start_step) % self.step_interval == 0

    # Reading.

    def _hook_modules(self, prefix: str, chunk: Any) -> None:
        targets = self._monitors["module"].get("targets", [])
        for module_name, module in self._modules_in(chunk):
            name = prefix + module_name
            if not targets or any(target in name for target in targets):
                self._handles += self._hook_module(name, module)

    def _read_parameters(self, scope: str) -> None:
        if "param" in self._monitors and self._monitors["param"].get("param_distribution", True):
            for name, parameter in self._parameters.items():
                if parameter.numel():
                    self._read("param", name, scope, parameter)

    def _read_moments(self) -> None:
        if "optimizer" in self._monitors and self._monitors["optimizer"].get("mv_distribution", True):
            for moment in ("exp_avg", "exp_avg_sq"):
                for name, parameter in self._parameters.items():
                    value = self._moment(parameter, moment)
                    if value is not None:
                        self._read("optimizer", f"{name}.{moment}", moment, value)

    def _read(self, kind: str, name: str, scope: str, tensor: Any, **more: Any) -> None:
        if not self._is_collected():
            return
        try:
            numbers = self._numbers(kind, tensor)
        except Exception as error:
            log.warning(f"TrainerMonitorV2: {name}: {type(error).__name__}: {error}")
            return
        self._add_row(kind, name, scope, numbers, **more)

    # Steps and files.

    @property
    def _steps_with_optimizer(self) -> bool:
        return self._optimizer is not None and bool(self.config.get("patch_optimizer_step", True))

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


def _asked_framework(config: dict[str, Any], fr: str | None, default: str | None) -> str:
    """One of _FRAMEWORKS."""
    asked = str(fr or config.get("framework", default)).strip().lower()
    if asked not in _FRAMEWORKS:
        raise MsprobeError(f"framework is {asked!r}; it should be one of {', '.join(_FRAMEWORKS)}")
    return asked


def _ops_of(asked: Iterable[str] | None) -> list[str]:
    requested = [asked] if isinstance(asked, str) else list(asked or _OPS)
    unknown = [op for op in requested if op not in _OPS]
    if unknown:
        log.warning(f"ops {unknown} are left out; they should be among {', '.join(_OPS)}")
    return [op for op in requested if op in _OPS] or list(_OPS)


__all__ = ["EPS", "TrainerMonitorV2"]

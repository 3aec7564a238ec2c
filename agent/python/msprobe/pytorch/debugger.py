"""PrecisionDebugger: the class users start and stop; decides what is captured when, and leaves the capturing to C++."""

import atexit
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from msprobe import _agent
from msprobe.pytorch import _log
from msprobe.pytorch._describe import describe
from msprobe.pytorch.interception import Interception, make_api

_PACKAGE = Path(__file__).resolve().parent.parent
_EXIT_SECONDS = 120.0  # how long a process waits at exit for its records to be durable and exported


class MsprobeError(Exception):
    """A wrong configuration or a wrong call; the message says what is wrong and what would be right."""


def _distributed_rank() -> int | None:
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def _server_binary() -> str:
    beside = Path(sys.executable).parent / "msprobe-server"
    return os.environ.get("MSPROBE_SERVER_BINARY") or (str(beside) if beside.exists() else shutil.which("msprobe-server") or "")


def _read_config(config_path: str | os.PathLike[str] | None) -> str:
    if config_path is None:
        return '{"task": "statistics", "dump_path": "./dump_path", "level": "L1"}'
    try:
        return Path(config_path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MsprobeError(f"config_path {os.fspath(config_path)!r} cannot be read: {error}; give the path of a JSON file") from None


def _step_texts(step: Any) -> list[str] | None:
    if step is None:
        return None
    if not isinstance(step, (list, tuple)):
        raise MsprobeError(f"step is {step!r}; it should be a list of integers, or of strings like '3' or '3-5'")
    for each in step:
        if isinstance(each, bool) or not isinstance(each, (int, str)):
            raise MsprobeError(f"step element {each!r} must be an integer or string")
    return [str(each) for each in step]


class _Service:
    """What user code reads of ``debugger.service``."""

    def __init__(self) -> None:
        self.loop = 0
        self.init_step = 0
        self.current_iter = 0


class PrecisionDebugger:
    """Captures API calls and modules of a PyTorch model, between start() and stop(), step by step.

    Arguments stand above the same fields of the configuration file. One exists a process: constructing again returns it and warns
    if the arguments are others. Methods work on the class as well. Nothing raises into the run once start() has
    returned. Thread-safe, as far as start, stop and step are called by one thread at a time.
    """

    _instance: "PrecisionDebugger | None" = None
    _abandoned: Any
    _arguments: tuple[Any, ...]
    _initialised: bool
    config: Any
    _lock = threading.RLock()

    def __new__(cls, *args: Any, **kwargs: Any) -> "PrecisionDebugger":
        with cls._lock:
            if cls._instance is None:
                made = super().__new__(cls)
                made._initialised = False
                cls._instance = made
            return cls._instance

    def __init__(
        self,
        config_path: str | os.PathLike[str] | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: Sequence[int | str] | None = None,
    ) -> None:
        arguments = (config_path, task, dump_path, level, step)
        if self._initialised:
            if arguments != self._arguments and any(each is not None for each in arguments):
                _log.warning(
                    "PrecisionDebugger exists already in this process and keeps its first configuration "
                    f"(dump_path {self.config.dump_path}); the arguments {arguments} are ignored."
                )
            return
        try:
            self.config = _agent.parse_config(
                _read_config(config_path), task=task, dump_path=dump_path, level=level, step=_step_texts(step)
            )
        except ValueError as error:
            type(self)._instance = None
            raise MsprobeError(str(error)) from None
        except MsprobeError:
            type(self)._instance = None
            raise
        self._arguments = arguments
        self._initialised = True
        self.task = self.config.task
        self.service = _Service()
        self.module_dumper = None
        self._agent: Any = None
        self._rank: int | None = None
        self._interception = Interception()
        self._models: list[Any] = []
        self._custom: dict[tuple[int, str], Any] = {}
        self._saves: Counter[str] = Counter()
        self._running = False
        self._step_has_records = False
        self._ended = False
        self._told_fork = False
        self._pid = os.getpid()
        for text in self.config.warnings:
            _log.warning(text)
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._after_fork)

    # What users call. Each is a class method in effect: PrecisionDebugger.start() and debugger.start() are the same.

    @classmethod
    def start(
        cls,
        model: Any = None,
        token_range: Sequence[int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: dict[str, int] | None = None,
    ) -> None:
        """Begins to capture into the present step.

        model: the module (or list of modules) whose submodules are recorded; needed at levels L0 and mix.
        rank_id: names the rank where torch.distributed does not. token_range is refused; scheduled_tokens is accepted and has no effect.
        """
        cls._the()._start(model, token_range, rank_id)

    @classmethod
    def stop(cls) -> None:
        """Stops capturing and puts every intercepted function back. Does not wait for the records to arrive."""
        cls._the()._stop()

    @classmethod
    def step(cls, dump: bool = True) -> None:
        """Ends the step. dump=False forgets its records, and its number is used again."""
        cls._the()._end_step(dump)

    @classmethod
    def wait(cls, timeout: float = 60.0) -> bool:
        """Waits until what was captured is durable and, with an embedded server, the files are in place. False: timed out (seconds)."""
        return cls._the()._wait(timeout)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """The next directory is step{step}. An int of at least 0."""
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise MsprobeError(f"init step is {step!r}; it should be an integer of at least 0")
        service = cls._the().service
        service.init_step, service.loop = step, 0

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Level debug: records a value, and the gradients that its tensors get later, under a name, in debug.json."""
        cls._the()._save(variable, name, save_backward)

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Calls of ``module.api`` are recorded as ``{api_prefix}.{api}``; the prefix defaults to the module's name."""
        cls._the()._register_custom_api(module, api, api_prefix)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undoes register_custom_api."""
        original = cls._the()._custom.pop((id(module), api), None)
        if original is not None:
            setattr(module, api, original)

    @classmethod
    def _the(cls) -> "PrecisionDebugger":
        if cls._instance is None or not cls._instance._initialised:
            raise MsprobeError("PrecisionDebugger has not been constructed; call PrecisionDebugger(config_path) first")
        return cls._instance

    def _start(self, model: Any, token_range: Sequence[int] | None, rank_id: int | None) -> None:
        service = self.service
        service.current_iter = service.loop + service.init_step
        if token_range is not None:
            raise MsprobeError(f"token_range is {token_range!r}; this version cannot select tokens, leave it out")
        if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
            raise MsprobeError(f"rank_id is {rank_id!r}; it should be an integer of at least 0")
        if self.config.level == "debug" or self._ended:
            return
        models = self._modules_of(model)
        if self.config.level in ("L0", "mix") and not (models or self._models):
            raise MsprobeError(f"missing the parameter 'model': level {self.config.level} records modules; call start(model=...)")
        if self.config.step and service.current_iter > max(self.config.step):
            self._ended = True
            self._stop_capture()
            _log.info("msprobe ends successfully")
            return
        if self.config.step and service.current_iter not in self.config.step:
            return
        self._update_rank(rank_id)
        if self.config.rank and self._rank not in self.config.rank:
            if self._rank is None:
                _log.warning(
                    f"rank is {self.config.rank}, but torch.distributed is not initialised and no rank_id was given: nothing is captured"
                )
            return
        self._open()
        self._add_modules(models)
        self._interception.set_phase = self._agent.set_phase
        self._agent.start(service.current_iter)
        self._interception.install(with_apis=self.config.level in ("L1", "mix"))
        self._running = self._step_has_records = True
        _log.info("msprobe: debugger.start() is set successfully")
        _log.info(f"Dump switch is turned on at step {service.current_iter}. ")
        _log.info(f"Dump data will be saved in {self.config.dump_path}/step{service.current_iter}.")

    def _stop(self) -> None:
        if not self._running:
            return
        self._stop_capture()
        _log.info(
            "msprobe: debugger.stop() is set successfully. Please set debugger.start() to turn on the dump switch again. "
        )

    def _stop_capture(self) -> None:
        self._running = False
        if self._agent is not None:
            self._agent.stop()
        self._interception.restore()

    def _end_step(self, dump: bool) -> None:
        service = self.service
        service.current_iter = service.loop + service.init_step
        if self._agent is not None and self._step_has_records and not self._ended:
            if self._rank is None:
                self._update_rank(None)
            self._agent.end_step(service.current_iter, keep=dump)
            if self._running:  # step() without stop(): goes on in the next step
                self._agent.start(service.current_iter + (1 if dump else 0))
        self._step_has_records = self._running
        self._saves.clear()
        if dump:
            service.loop += 1

    def _wait(self, timeout: float) -> bool:
        if self._agent is None:
            return True
        if self._step_has_records:
            self._agent.export_open_step(self.service.loop + self.service.init_step)
        missing = self._agent.wait(timeout)
        if missing:
            _log.warning(missing)
        return not missing

    def _open(self) -> None:
        if self._agent is not None:
            return
        program = Path(sys.argv[0] or "python").name
        try:
            self._agent = _agent.Agent(
                config=self.config,
                run=self.config.run or _agent.choose_run_name(program),
                rank=self._rank,
                process_id=os.getpid(),
                server_binary=_server_binary(),
                framework_version=torch.__version__,
                program=program,
                own_directory=str(_PACKAGE),
                describe=describe,
            )
        except ValueError as error:
            raise MsprobeError(str(error)) from None

    def _update_rank(self, rank_id: int | None) -> None:
        rank = rank_id if rank_id is not None else _distributed_rank()
        if rank is None or rank == self._rank:
            return
        self._rank = rank
        _log.set_rank(rank)
        if self._agent is not None:
            self._agent.set_rank(rank)

    @staticmethod
    def _modules_of(model: Any) -> list[Any]:
        if model is None:
            return []
        models = list(model) if isinstance(model, (list, tuple)) else [model]
        for each in models:
            if not isinstance(each, torch.nn.Module):
                raise MsprobeError(f"model is a {type(each).__name__}; it should be a torch.nn.Module or a list of them")
        return [model] if not isinstance(model, (list, tuple)) else [models]

    def _add_modules(self, given: list[Any]) -> None:
        for model in given:
            if any(model is known or (isinstance(model, list) and model == known) for known in self._models):
                continue
            self._models.append(model)
            roots = model if isinstance(model, list) else [model]
            for index, root in enumerate(roots):
                prefix = f"Module.{index}" if isinstance(model, list) else "Module"
                if self.config.level in ("L0", "mix"):
                    for name, module in root.named_modules():
                        kind = type(module).__name__
                        if module is not root and kind != "FullyShardedDataParallel":
                            self._agent.add_module(module, name=f"{prefix}.{name}.{kind}", is_root=False)
                if index == 0:
                    self._agent.add_module(root, name="", is_root=True)

    def _register_custom_api(self, module: Any, api: str, api_prefix: str | None) -> None:
        original = getattr(module, api, None)
        if not callable(original):
            raise MsprobeError(f"{getattr(module, '__name__', module)!r} has no callable {api!r}")
        prefix = api_prefix or getattr(module, "__name__", type(module).__name__)
        from msprobe.pytorch.interception import read_names

        sections = read_names((_PACKAGE / "pytorch" / "api_names.txt").read_text(encoding="utf-8"))
        risk = next((level for level in ("CORE", "LOW") if api in sections[f"risk {level}"]), "FOCUS")
        self._custom.setdefault((id(module), api), original)
        setattr(module, api, _agent.intercept(original, "api", api=make_api(f"{prefix}.{api}", risk)))
        _log.info(f"Custom api registered: {getattr(module, '__name__', module)}.{api}")

    def _save(self, variable: Any, name: str, save_backward: bool) -> None:
        service = self.service
        step = service.current_iter = service.loop + service.init_step
        if self.config.level != "debug" or (self.config.step and step not in self.config.step):
            return
        if not isinstance(name, str):
            _log.warning(f"save: name is {name!r}; it should be a string. The call is skipped.")
            return
        if not isinstance(variable, (torch.Tensor, int, float, str, dict, list, tuple)):
            _log.warning(
                f"save: {name!r} is a {type(variable).__name__}; it should be a tensor, int, float, str, dict, list or tuple. "
                "The call is skipped."
            )
            return
        self._update_rank(None)
        self._open()
        self._step_has_records = True
        count = self._saves[name]
        self._saves[name] += 1
        self._agent.save(name, count=count, step=step, value=variable)
        if save_backward:
            self._save_gradients(variable, f"{name}_grad", count, step)

    def _save_gradients(self, variable: Any, name: str, count: int, step: int) -> None:
        root: list[Any] = [None]

        def keep(holder: Any, key: Any, gradient: torch.Tensor) -> None:
            try:
                if self._agent is None or self.service.loop + self.service.init_step != step:
                    return
                holder[key] = self._agent.read(gradient)
                self._agent.save(name, count=count, step=step, value=root[0])
            except Exception as error:  # into the user's backward pass nothing of ours may go
                _log.error(f"save: the gradient of {name!r} was not recorded: {error}")

        def mirror(value: Any, holder: Any, key: Any) -> None:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value.register_hook(lambda gradient: keep(holder, key, gradient))
            elif isinstance(value, dict):
                holder[key] = dict.fromkeys(value)
                for inner, each in value.items():
                    mirror(each, holder[key], inner)
            elif isinstance(value, (list, tuple)):
                holder[key] = [None] * len(value)
                for index, each in enumerate(value):
                    mirror(each, holder[key], index)

        mirror(variable, root, 0)
        self._agent.save(name, count=count, step=step, value=root[0])

    def _at_exit(self) -> None:
        if self._agent is None or os.getpid() != self._pid:
            return
        self._stop_capture()
        missing = self._agent.close(clean=True, seconds=_EXIT_SECONDS)
        if missing:
            _log.warning(missing)
        self._agent = None

    def _after_fork(self) -> None:
        if self._agent is None:
            return
        self._interception.restore()
        self._agent.abandon()
        type(self)._abandoned = self._agent  # never destroyed: it belongs to the parent
        self._agent = None
        if self._running:
            _log.warning("a forked process captures nothing until it calls debugger.start()")
        self._running = self._step_has_records = False
        self._models = []
        self._pid = os.getpid()


__all__ = ["MsprobeError", "PrecisionDebugger"]

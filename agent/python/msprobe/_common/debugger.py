"""The part of PrecisionDebugger that is every framework's: what is captured when. Each framework derives its own."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msprobe._common import arguments, log, scalars
from msprobe._common.asked_request import as_asked
from msprobe._common.config_file import ConfigFile, differences
from msprobe._common.custom_apis import CustomApis
from msprobe._common.earlier_dump import rank_directory
from msprobe._common.errors import MsprobeError, end_with_message
from msprobe._common.followed_config import FollowedConfig
from msprobe._common.gradient_watch import GradientWatch
from msprobe._common.leaving import leave
from msprobe._common.live_control import LiveControl
from msprobe._common.saving import Saver
from msprobe._common.service import Service
from msprobe._common.step_bounds import StepBounds
from msprobe.select import Predicate

if TYPE_CHECKING:
    from typing import Self


class Debugger:
    """Captures API calls and modules of a model, between start() and stop(), step by step.

    Arguments stand above the same fields of the configuration file. One exists a process: constructing again returns
    it, and says which fields stay as they were. Methods work on the class as well. Nothing raises into the run once
    start() has returned. Thread-safe, as far as start, stop and step are called by one thread at a time.

    A framework's class gives the methods of the first section below.
    """

    framework = ""  # "pytorch"
    rank_source = ""  # that gives the rank: "torch.distributed"
    file_class = ConfigFile

    _instance: Any = None
    _abandoned: Any
    _arguments: tuple[Any, ...]
    _initialised: bool
    config: Any
    _custom_apis: CustomApis
    _saver: Saver
    _gradients: GradientWatch
    _lock = threading.RLock()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
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
        dump_path: str | os.PathLike[str] | None = None,
        level: str | None = None,
        step: Sequence[int | str] | None = None,
        *,
        schedule: Mapping[str, int] | None = None,
        select: Predicate | str | None = None,
    ) -> None:
        given = (config_path, task, dump_path, level, step, schedule, select)
        with type(self)._lock:  # another thread that constructs it waits until it is whole
            if not self._initialised:
                self._construct(given)
            elif any(each is not None for each in given):
                self._tell_of_second(*given)

    def _construct(self, given: tuple[Any, ...]) -> None:
        try:
            self._file = self.file_class(*given)
            self._followed = FollowedConfig(self._file, self._refuse_change)
            self.config = self._followed.config
            self._refuse_shared_path()
            self._refuse(self.config)
            self._control = LiveControl(self._followed)
        except MsprobeError as error:
            type(self)._instance = None
            end_with_message(error)
            raise
        self.task = self.config.task
        self.service = Service()
        self._agent: Any = None
        self._rank: int | None = None
        self._models: list[Any] = []
        self._registered = 0  # so many of _models are known to the agent
        self.training: Any = None
        self._watched = 0  # how many of _models it has
        self._loaded: Any = None  # what replaces the inputs of modules (load)
        self._bench_step: int | None = None  # the step that a bench was looked for
        self._running = False
        self._started = False  # between start and stop, whether or not anything is captured
        self._step_has_records = False
        self._ended = False
        self._bounds = StepBounds()
        self._paused = False  # for want of room, since start
        self._told_of_empty = False
        self._tell_start = log.info
        self._tokens: tuple[int, int] | None = None
        self._pid = os.getpid()
        self._forked = False  # and not started since
        self._is_cut_off = False  # forked from a process whose agent is connected: nothing can be captured
        self._tells_of_fork = False  # which it says once
        self._make_parts()
        self._untold = list(self.config.warnings)
        if not _is_worker():  # one that only imports the program says nothing; once it captures it does
            self._tell_warnings()
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._after_fork)
        self._initialised = True

    def _refuse_shared_path(self) -> None:
        """MsprobeError: another framework of this process writes its files to the same place."""
        if self.config.server:
            return
        for other in Debugger.__subclasses__():
            debugger = other._instance
            if other is type(self) or debugger is None or not debugger._initialised or debugger.config.server:
                continue
            if os.path.realpath(debugger.config.dump_path) == os.path.realpath(self.config.dump_path):
                raise MsprobeError(
                    f"dump_path is {self.config.dump_path!r}, where {other.framework} of this process is dumped; give "
                    f"{self.framework} another one"
                )

    def _give(self, **fields: Any) -> None:
        self._followed.give(fields)
        self.config = self._followed.config

    def _tell_warnings(self) -> None:
        for text in self._untold:
            log.warning(text)
        self._untold = []

    def _withdraw(self) -> None:
        """As if it had not been constructed; it has captured nothing yet."""
        atexit.unregister(self._at_exit)
        type(self)._instance = None

    def _tell_of_second(self, *arguments: Any) -> None:
        try:
            lines = differences(self._file.asked(), ConfigFile(*arguments).asked())
        except MsprobeError as error:
            lines = [str(error)]
        if lines:
            log.warning(
                "PrecisionDebugger exists already in this process and keeps its first configuration; the second is "
                "ignored: " + "; ".join(lines)
            )

    # What a framework gives.

    def _make_parts(self) -> None:
        """At construction: _custom_apis, _saver, _gradients, and what else the framework needs.

        The configuration is there.
        """
        raise NotImplementedError

    def _refuse(self, config: Any) -> None:
        """MsprobeError: the framework cannot do what the configuration asks."""

    def _refuse_change(self, asked: dict[str, Any], config: Any) -> None:
        """MsprobeError: it cannot do it from now on. asked: the fields of the file that has changed."""

    def _open_session(self) -> Any:
        """The agent of self.config."""
        raise NotImplementedError

    def _framework_rank(self) -> int | None:
        raise NotImplementedError

    def _install(self) -> None:
        """Intercepts what the configuration wants."""
        raise NotImplementedError

    def _uninstall(self) -> None:
        """Puts back what was intercepted."""
        raise NotImplementedError

    def _uninstall_in_child(self) -> None:
        """As _uninstall, in a forked child, whose other threads are gone with what they held."""
        self._uninstall()

    def _register_models(self) -> None:
        """Tells the agent of self._models, of which it knows self._registered."""
        raise NotImplementedError

    def _set_batch(self, scheduled: dict[str, int]) -> None:
        """Requests and their tokens that the next forward pass holds, where the framework serves."""

    def _finish_calls(self) -> None:
        """The step ends: records that wait for gradients get no more."""

    def _why_empty(self, asked: dict[str, Any], *, passes: bool, calls: bool) -> str:
        """Why a step has no record, as part of a sentence."""
        raise NotImplementedError

    def _make_training(self) -> Any:
        """Task monitor: what shows a training to the agent's series (ParameterSeries)."""
        raise NotImplementedError

    # Of task monitor.

    def watch(self, models: list[Any], optimizer: Any, after_step: Callable[[Any], None] | None = None) -> None:
        """Task monitor: the models' training becomes series. after_step(optimizer): called when it has stepped."""
        self._open()
        if self.training is None:
            self.training = self._make_training()
        for index, model in enumerate(models):
            self.training.add(model, prefix=f"{index}." if len(models) > 1 else "")
        self.training.add_optimizer(optimizer, after_step)

    @property
    def watches_step(self) -> bool:
        """Task monitor: whether what happens now becomes series, by interval, step, rank and switch."""
        config, step = self.config, self.service.loop + self.service.init_step
        is_wanted = step % config.interval == 0 and (not config.step or step in config.step)
        return is_wanted and self._followed.enabled and (not config.rank or self._rank in config.rank)

    def _watch_training(self) -> None:
        """What training does to the models becomes series from now on."""
        if self.config.task != "monitor":
            return
        fresh = self._models[self._watched :]
        self._watched = len(self._models)
        models = [part for model in fresh for part in (model if isinstance(model, list) else [model])]
        if self.training is None:
            self.watch(models, None)
            return
        for model in models:  # start() was given another one
            self.training.add(model, prefix="")

    def _send_series(self, step: int, keep: bool) -> None:
        """The step ends: its points are sent, or forgotten."""
        if self.training is not None and self._agent is not None:
            if keep:
                self.training.end_step()
                self._agent.send_series(step)
            else:
                self._agent.forget_series()
            if self.config.task != "monitor":  # it was changed while the program ran
                self.training.close()
                self.training, self._watched = None, 0

    def _samples(self, step: int) -> bool:
        """Whether the schedule has this step; without one, of task monitor, whether the step's modules are captured.

        Every other task captures each step that it may.
        """
        if self.config.schedule is not None:
            return bool(self._control.forced or self.config.scheduled(step - self.service.init_step))
        every = self.config.activations if self.config.task == "monitor" else 1
        return bool(every) and step % every == 0

    # Of load, where the framework has it.

    @property
    def _loads_only(self) -> bool:
        return False

    def _make_inputs(self) -> Any:
        return None

    def _start_loading(self) -> None:
        raise NotImplementedError

    def _load_inputs(self) -> None:
        """What is loaded goes into the calls of this step."""

    # What users call. Each is a class method in effect: PrecisionDebugger.start() and debugger.start() are the same.

    @classmethod
    def stop(cls) -> None:
        """Stops capturing and puts every intercepted function back. Does not wait for the records to arrive."""
        cls._the()._stop()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """The older name of stop."""
        cls.stop()

    @classmethod
    def step(cls, dump: bool = True) -> None:
        """Ends the step. dump=False forgets its records, and its number is used again."""
        cls._the()._end_step(arguments.boolean(dump, "dump"))

    @classmethod
    def wait(cls, timeout: float = 60.0) -> bool:
        """Waits until what was captured is durable and, with an embedded server, the files are in place.

        False: not within timeout seconds, or the server has lost steps whose files it had still to write (told once).
        """
        return cls._the()._wait(arguments.seconds(timeout, "timeout"))

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """The next directory is step{step}. An int of at least 0."""
        service = cls._the().service
        service.init_step, service.loop = arguments.init_step(step), 0

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Level debug: records a value, and the gradients that its tensors get later, under a name, in debug.json."""
        cls._the()._save(variable, name, save_backward)

    @classmethod
    def log(cls, values: Mapping[str, Any], step: int | None = None) -> None:
        """Sends numbers under names, as points of series: ``debugger.log({"loss": loss, "lr": 1e-4})``.

        A value is a number or a tensor of one element; nothing waits for a tensor on a device. step: default the
        present one. Every step counts, whether or not it is captured. Given again for the same step, the later counts.
        """
        cls._the()._log(values, step)

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Calls of ``module.api`` are recorded as ``{api_prefix}.{api}``; the prefix defaults to the module's name."""
        cls._the()._custom_apis.register(module, api, api_prefix)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undoes register_custom_api."""
        cls._the()._custom_apis.restore(module, api)

    @classmethod
    def _the(cls) -> Self:
        if cls._instance is None or not cls._instance._initialised:
            raise MsprobeError("PrecisionDebugger has not been constructed; call PrecisionDebugger(config_path) first")
        if cls._instance._pid != os.getpid():  # C code forked, which tells Python nothing
            cls._instance._after_fork()
        return cls._instance

    def _start(
        self, models: list[Any], tokens: tuple[int, int] | None, rank_id: int | None, scheduled: dict[str, int] | None
    ) -> None:
        if self.config.task == "grad_probe":  # monitor() says what is looked at, and each call of an optimizer when
            return
        service = self.service
        service.current_iter = service.loop + service.init_step
        if not self._may_capture():
            return
        self._started = True
        self._tokens = tokens
        self._tell_warnings()
        self._add_models(models)
        if self.config.server and self._agent is None:
            self._update_rank(rank_id)
            self._open()
        self._follow_file()
        if not self._followed.enabled or self.config.level == "debug" or self._ended or self._paused:
            return
        if not self._models:
            reason = "token_range counts its forward passes" if tokens is not None else None
            if self.config.level in ("L0", "mix"):
                reason = f"level {self.config.level} records modules"
            if self._loaded is not None:
                reason = "load replaces the inputs of its modules"
            if reason is not None:
                raise MsprobeError(f"missing the parameter 'model': {reason}; call start(model=...)")
        if self._has_ended(service.current_iter):
            return self._end()
        if self.config.step and service.current_iter not in self.config.step and not self._control.forced:
            return
        self._update_rank(rank_id)
        if self.config.rank and self._rank not in self.config.rank:
            if self._rank is None:
                log.warning(
                    f"rank is {self.config.rank}, but {self.rank_source} is not initialised and no rank_id was given: "
                    "nothing is captured"
                )
            return
        if self._loads_only:
            return self._start_loading()
        self._watch_training()
        if not self._samples(service.current_iter):
            return
        rows = None
        scheduled = as_asked(self.config.request_id, scheduled)
        if self.config.request_id and scheduled is not None:
            rows = arguments.request_rows(self.config.request_id, scheduled)
            if rows is None:
                log.warning(
                    f"request_id {self.config.request_id!r} is not among scheduled_tokens {list(scheduled)}: "
                    f"step {service.current_iter} is not captured"
                )
                return
        self._open()
        self._agent.set_request_rows(rows)
        self._set_batch(scheduled or {})
        self._find_bench()
        self._register_models()
        self._load_inputs()
        self._agent.start(service.current_iter, tokens)
        self._install()
        self._running = self._step_has_records = True
        self._control.say(self._agent, True, service.current_iter)
        self._tell_of_start(f"Dump switch is turned on at step {service.current_iter}.")

    def _add_models(self, models: list[Any]) -> None:
        self._models += [
            model for model in models if not any(model is known or model == known for known in self._models)
        ]

    def _replay(
        self,
        models: list[Any],
        run_pass: Callable[[], Any],
        restore: Callable[[], None],
        rank_id: int | None,
        feed: Callable[[], None] | None = None,
    ) -> Any:
        """Runs a step twice, with restore() between, and captures both passes; then captures as before.

        feed(): of local_error: puts a stage into the second pass, and both have the content of every tensor.
        """
        service = self.service
        first = service.loop + service.init_step
        name = "replay" if feed is None else "local_error"
        if self._started or self._step_has_records:
            raise MsprobeError(
                f"{name}: step {first} has been started; call it after stop() and step(), before the next start()"
            )
        if not self._may_capture():
            return run_pass()
        self._tell_warnings()
        self._update_rank(rank_id)
        self._open()
        is_off = not self._followed.enabled or self._bounds.is_full(self._agent)
        captured = not is_off and (not self.config.rank or self._rank in self.config.rank)
        config = self._file.for_replay(self.config, with_modules=bool(models), tensors=feed is not None)
        command = f"msprobe-client {name.replace('_', '-')}"
        log.info(
            f"{name}: this step runs twice from the same state, as steps {first} and {first + 1}; what it does besides "
            f"computing happens twice. `{command}` compares the two."
        )
        kept, self._models = self._models, list(models)
        result = None
        try:
            for number in (1, 2):
                if number == 2:
                    restore()
                if captured:
                    self._start_pass(config, feed or self._touch_all if number == 2 else None)
                result = run_pass()
                self._end_pass(keep=True)
        finally:
            self._end_pass(keep=False)
            self._models, self._registered = kept, 0
            self.config = self._followed.config
            self._agent.reconfigure(self.config)
        return result

    def _touch_all(self) -> None:
        """The program did not ask for this pass, and each record of a call says so."""
        self._agent.set_stage("replay", _call_as_it_is)

    def _start_pass(self, config: Any, put_stage: Callable[[], None] | None) -> None:
        self.config, self._registered = config, 0
        self._agent.reconfigure(config, replay=True)
        self._register_models()
        if put_stage is not None:
            put_stage()
        self._agent.start(self.service.loop + self.service.init_step, None)
        self._install()
        self._running = self._step_has_records = True

    def _end_pass(self, keep: bool) -> None:
        """keep: the pass has ended; otherwise it raised, and nothing of it is kept."""
        if self._running:
            self._stop_capture()
            self._agent.end_step(self.service.loop + self.service.init_step, keep=keep)
            self._step_has_records = False
        if keep:
            self.service.loop += 1

    def _tell_of_start(self, what: str) -> None:
        """Once a process; each step says at its end where it is."""
        tell, self._tell_start = self._tell_start, log.debug
        where = f"Dump data will be saved in {self.config.dump_path}."
        tell(f"msprobe: debugger.start() is set successfully. {what} {where}")

    def _end(self) -> None:
        self._ended = True
        self._stop_capture()
        log.info("msprobe ends successfully")

    def _has_ended(self, step: int) -> bool:
        past = (bool(self.config.step) and step > max(self.config.step)) or self._bounds.is_last(self.config)
        if self.config.task != "monitor":  # whose series go on
            past = past or self.config.schedule_is_over(step - self.service.init_step)
        return (past and not self._control.forced) or (self._agent is not None and self._agent.diff_check_done())

    def _stop(self) -> None:
        self._started = False
        if self._running:
            self._stop_capture()
            if self._loaded is not None:
                self._loaded.tell_missed()
            log.debug(
                "msprobe: debugger.stop() is set successfully. "
                "Please set debugger.start() to turn on the dump switch again. "
            )
        self._follow_file()

    def _stop_capture(self) -> None:
        self._running = False
        if self._agent is not None:
            self._agent.stop()
        if self._loaded is not None:
            self._loaded.unhook()
        self._uninstall()

    def _monitor(self, named: Iterable[tuple[str, Any]]) -> bool:
        """Task grad_probe: gradients of these parameters are looked at from now on. False: the task is another."""
        if self.config.task != "grad_probe":
            return False
        if not self._may_capture():
            return True
        self._tell_warnings()
        self._gradients.add(named)
        self._gradients.tell_unknown(self.config.param_list)
        return True

    def _optimizer_steps(self, gradient_of: Callable[[Any], Any]) -> None:
        """As _probe_gradients, on the optimizer's thread. Nothing raises into the program."""
        try:
            self._probe_gradients(gradient_of)
        except Exception as error:
            log.error(f"grad_probe: the gradients of step {self.service.current_iter} were not looked at: {error}")

    def _probe_gradients(self, gradient_of: Callable[[Any], Any]) -> None:
        """An optimizer is about to take the gradients: they are looked at, and that is one step."""
        service = self.service
        with self._lock:  # optimizers may step on several threads
            step = service.current_iter = service.loop + service.init_step
            self._follow_file()
            if self.config.task != "grad_probe":
                return
            service.loop += 1
        forced = self._control.forced
        if (
            not self._followed.enabled
            or self._forked
            or (self._bounds.is_last(self.config) and not forced)
            or self._paused
            or (self.config.step and step not in self.config.step and not forced)
            or not self._samples(step)
        ):
            return
        self._update_rank(None)
        if self.config.rank and self._rank is not None and self._rank not in self.config.rank:
            return
        gradients = self._gradients.gradients(self.config.param_list, gradient_of)
        self._open()
        self._agent.look_at_gradients(step, gradients)
        self._agent.end_step(step, keep=True)
        self._bounds.note_step()
        self._control.end_step()

    def _end_step(self, dump: bool) -> None:
        if self.config.task == "grad_probe":  # whose steps are calls of an optimizer
            return
        service = self.service
        service.current_iter = service.loop + service.init_step
        self._finish_calls()
        self._send_series(service.current_iter, dump)
        if self._agent is not None and self._step_has_records and not self._ended:
            if self._rank is None:
                self._update_rank(None)
            passes, calls, records = self._agent.end_step(service.current_iter, keep=dump)
            if dump:
                self._bounds.note_step()
                self._control.end_step()
                self._tell_of_end(passes, calls, records)
        goes_on = self._running and self._agent is not None  # step() without stop()
        self._step_has_records = False
        self._saver.end_step()
        if self._loaded is not None:
            self._loaded.end_step()
        if dump:
            service.loop += 1
        self._bench_step = None
        was_paused = self._paused
        self._follow_file()
        is_sampled = self._samples(service.loop + service.init_step)
        if self._running and not is_sampled:
            self._stop_capture()
        if self._bounds.is_last(self.config) and self._running and not self._control.forced:
            self._end()
        elif goes_on and self._running:
            service.current_iter = service.loop + service.init_step
            self._find_bench()
            self._agent.go_on(service.current_iter)
            self._step_has_records = True
        elif (
            self._started
            and not self._running
            and not self._ended
            and self._has_ended(service.loop + service.init_step)
        ):
            self._end()  # without a start() that would see it
        elif self._started and not self._running:
            waited = is_sampled and (self.config.task == "monitor" or self.config.schedule is not None)
            if waited or self._control.forced or (was_paused and not self._paused):
                self._start_again()

    def _tell_of_end(self, passes: bool, calls: bool, records: bool) -> None:
        step = self.service.current_iter
        sampled = self.config.task == "check" and calls  # a step may have none that is new, or no budget left
        if not records and not sampled and not self._told_of_empty:
            self._told_of_empty = True
            asked = self._file.asked()
            section = asked.get(self.config.task)
            asked |= section if isinstance(section, dict) else {}
            why = self._why_empty(asked, passes=passes, calls=calls)
            log.warning(f"step {step} has no record: {why}")
        if records and self.config.server:  # others tell where dump.json is, once it is there
            log.info(f"step {step} goes to {self.config.server}.")

    def _start_again(self) -> None:
        """Of a program that called start() once, and that has been switched on since, or has room again."""
        try:
            self._start([], None, None, None)
        except MsprobeError as error:
            log.warning(f"nothing is captured: {error}")

    def _follow_file(self) -> None:
        self._followed.look()
        if self._control.obey(self._agent):
            self._ended = False
        self._paused = self._bounds.is_full(self._agent)
        if (not self._followed.enabled or self._paused) and self._running:
            self._stop_capture()
        if not self._step_has_records and self._followed.take():
            self._reconfigure()
        waits = self._step_has_records and self._followed.waits  # for the next step
        self._control.say(self._agent, self._running, self.service.loop + self.service.init_step + waits)

    def _reconfigure(self) -> None:
        config = self.config = self._followed.config
        self.task, self._ended = config.task, False
        was_running = self._running
        self._stop_capture()
        self._loaded = self._make_inputs()
        self._bench_step = None
        if self._agent is not None:
            self._agent.reconfigure(config)
            self._registered = 0
        if was_running and self._followed.enabled and config.level != "debug" and not self._loads_only:
            self._register_models()
            self._load_inputs()
            self._install()
            self._running = True

    # load and bench_path: what an earlier dump has of this step.

    def _open(self) -> None:
        with self._lock:  # log() comes from any thread
            if self._agent is not None:
                return
            self._agent = self._open_session()
            self._control.announce(self._agent)
            self._followed.settle()

    def _find_bench(self) -> None:
        step = self.service.current_iter
        if not self.config.bench_path or self._bench_step == step:
            return
        self._bench_step = step
        directory = rank_directory(self.config.bench_path, step, self._rank)
        try:
            self._agent.set_bench("" if directory is None else str(directory / "dump.json"))
        except ValueError as error:
            log.warning(f"bench_path: {error}; step {step} is not compared")
        if directory is None:
            place = f"step{step}" if self._rank is None else f"step{step}/rank{self._rank}"
            log.warning(f"bench_path: {self.config.bench_path} has no {place}; step {step} is not compared")

    def _wait(self, timeout: float) -> bool:
        if self._agent is None:
            return True
        if self._step_has_records:
            self._agent.export_open_step(self.service.loop + self.service.init_step)
        missing = self._agent.wait(timeout)
        if missing:
            log.warning(missing)
        return not missing

    def _update_rank(self, rank_id: int | None) -> None:
        rank = rank_id if rank_id is not None else self._framework_rank()
        if rank is None or rank == self._rank:
            return
        self._rank = rank
        log.set_rank(rank)
        if self._agent is not None:
            self._agent.set_rank(rank)

    def _save(self, variable: Any, name: str, save_backward: bool) -> None:
        service = self.service
        step = service.current_iter = service.loop + service.init_step
        if (
            self.config.level != "debug"
            or self._is_cut_off
            or not self._followed.enabled
            or (self.config.step and step not in self.config.step)
            or not self._samples(step)
            or self._bounds.is_last(self.config)
            or self._bounds.is_full(self._agent)
        ):
            return
        if not self._saver.accepts(variable, name, save_backward):
            return
        self._update_rank(None)
        if self.config.rank and self._rank not in self.config.rank:
            return
        self._open()
        self._step_has_records = True
        self._saver.save(variable, name, save_backward)

    def _log(self, values: Mapping[str, Any], step: int | None) -> None:
        service = self.service
        if not self._followed.enabled or self._forked:
            return
        accepted = scalars.accepted(values, step, self._saver.tensor_class)
        if not accepted:
            return
        self._update_rank(None)
        if self.config.rank and self._rank not in self.config.rank:
            return
        self._open()
        self._agent.log(service.loop + service.init_step if step is None else int(step), accepted)

    def agent_for_replies(self) -> Any:
        """The agent, which is opened for it; None: this process says nothing of replies. Not for users."""
        if self._forked:
            return None
        if self._agent is None:
            self._update_rank(None)
            self._open()
        return None if self.config.rank and self._rank not in self.config.rank else self._agent

    def _at_exit(self) -> None:
        if self._agent is None or os.getpid() != self._pid:
            return
        self._stop_capture()
        self._finish_calls()
        leave(self._agent, self.config)
        self._agent = None

    def _after_fork(self) -> None:
        self._forked = True
        type(self)._lock = threading.RLock()  # another thread of the parent may hold it
        self._pid = os.getpid()
        if self._agent is None:
            return
        self._uninstall_in_child()
        self._agent.abandon()
        type(self)._abandoned = self._agent  # never destroyed: it belongs to the parent
        self._agent = None
        self._is_cut_off = self._tells_of_fork = True
        self._running = self._step_has_records = False
        self._models, self._registered = [], 0

    def _may_capture(self) -> bool:
        """Asked by what begins to capture, which a forked process has to call itself."""
        if self._is_cut_off:
            if self._tells_of_fork:
                self._tells_of_fork = False
                log.warning(
                    "a process that was forked after start() captures nothing: the connection to the server is its "
                    "parent's; fork before the first start(), or use multiprocessing's start method 'spawn' or "
                    "'forkserver'"
                )
            return False
        self._forked = False
        return True


def _call_as_it_is(call: Any) -> Any:
    return call(*call.args, **call.kwargs)


def the_debugger() -> Debugger:
    """The one of this process. MsprobeError: none was constructed."""
    for framework in Debugger.__subclasses__():
        if framework._instance is not None:
            return framework._the()
    return Debugger._the()


def _forget_unfinished() -> None:
    """In a forked child: the thread that was constructing one is gone, and never gives its lock back."""
    Debugger._lock = threading.RLock()
    for framework in Debugger.__subclasses__():
        if framework._instance is not None and not framework._instance._initialised:
            framework._instance = None


os.register_at_fork(after_in_child=_forget_unfinished)


def _is_worker() -> bool:
    """Of multiprocessing; a spawned one has no parent yet while it imports the program."""
    imports_program = getattr(multiprocessing.current_process(), "_inheriting", False)
    return imports_program or multiprocessing.parent_process() is not None

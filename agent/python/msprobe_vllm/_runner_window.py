"""The window of a vLLM runner in which a step is captured: from a known batch to the end of sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msprobe_vllm._replies import Replies

_WINDOW = "_msprobe_window"


class RunnerWindow:
    """Calls the debugger where vllm-ascend's runner calls it, around the methods of one GPUModelRunner.

    1. It opens when the batch of execute_model is known and not empty, with the requests in the batch's order.
    2. It closes when sample_tokens (pool, for a pooling model of the newer runner) has ended, or execute_model where
       nothing is sampled: an encoder, a pipeline stage before the last, a pooling model. Drafting lies inside.
    3. Dummy runs (profiling, warm-up, an idle rank) never open it.
    4. An exception closes it: what was captured of the failed step is kept, and the next begins anew.
    5. Where replies are judged, the tokens that a batch sampled are told to the server.
    6. A debugger without `stop` captures graphs: it is started once, when the model is loaded and not compiled yet, and
       what a dummy run's replay has left is forgotten.
    Threads: the runner's own.
    """

    def __init__(self, runner: Any, debugger: Any, judged: bool = False) -> None:
        self._runner = runner
        self._debugger = debugger
        self._graphs = not hasattr(debugger, "stop")
        self._open = False
        self._executing = False
        self._replies = Replies(runner, debugger) if judged else None

    @staticmethod
    def of(runner: Any) -> RunnerWindow | None:
        return getattr(runner, _WINDOW, None)

    def status(self) -> dict[str, Any]:
        service = self._debugger.service
        return {
            "capturing": True,
            "dump_path": self._debugger.config.dump_path,
            "next_step": service.loop + service.init_step,
        }

    def open(self) -> None:
        """Puts itself around the runner's methods, those that this version of the runner has."""
        setattr(self._runner, _WINDOW, self)
        if self._graphs:
            self._around("load_model", self._loaded)
        self._around("execute_model", self._execute)
        self._around("sample_tokens", self._ending)
        self._around("pool", self._ending)
        self._around("_dummy_run", self._dummy)
        self._around("_update_states", self._updated)
        self._around("gather_batch_req_state", self._gathered)

    def _around(self, name: str, wrap: Callable[..., Any]) -> None:
        original = getattr(self._runner, name, None)
        if original is not None:
            setattr(self._runner, name, lambda *arguments, **keywords: wrap(original, *arguments, **keywords))

    def _execute(self, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        self._close()  # of a step whose sampling never came
        self._executing = not keywords.get("dummy_run", False)
        result = None
        try:
            result = original(*arguments, **keywords)
        except BaseException:
            self._close()
            raise
        finally:
            self._executing = False
        if result is not None:
            self._told(result)
            self._close()
        return result

    def _loaded(self, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        self._contained(lambda: self._debugger.start(self._runner.model))
        return result

    def _ending(self, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            result = original(*arguments, **keywords)
            self._told(result)
            return result
        finally:
            self._close()

    def _told(self, output: Any) -> None:
        if self._replies is not None and self._open:
            self._replies.sampled(output)

    def _dummy(self, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        executing, self._executing = self._executing, False
        try:
            return original(*arguments, **keywords)
        finally:
            self._executing = executing
            self._open = self._open or self._graphs
            self._close(dump=False)

    def _updated(self, original: Callable[..., Any], scheduler_output: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(scheduler_output, *arguments, **keywords)
        if self._executing:
            self._scheduled(scheduler_output)
            self._start(scheduler_output.num_scheduled_tokens, self._runner.input_batch.req_ids)
        return result

    def _gathered(self, original: Callable[..., Any], scheduler_output: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(scheduler_output, *arguments, **keywords)
        if self._executing and result is not None:
            self._scheduled(scheduler_output)
            self._start(scheduler_output.num_scheduled_tokens, result.req_ids)
        return result

    def _scheduled(self, scheduler_output: Any) -> None:
        if self._replies is not None:
            self._replies.scheduled(scheduler_output)

    def _start(self, scheduled: dict[str, int], order: Iterable[str | None]) -> None:
        batch = {request: scheduled[request] for request in order if request is not None and scheduled.get(request)}
        if self._open or not batch:
            return
        self._open = True
        if not self._graphs:
            self._contained(lambda: self._debugger.start(self._runner.model, scheduled_tokens=batch))
        else:
            self._contained(lambda: self._debugger.set_batch(self._placed(batch)))

    def _close(self, dump: bool = True) -> None:
        if not self._open:
            return
        self._open = False
        if not self._graphs:
            self._contained(self._debugger.stop)
        self._contained(lambda: self._debugger.step(dump=dump))

    def _placed(self, batch: dict[str, int]) -> list[tuple[str, int, int]]:
        """(request, tokens, position of the first) of each, where the runner keeps how far its requests are."""
        held = getattr(self._runner, "input_batch", None)
        done, index = getattr(held, "num_computed_tokens_cpu", None), getattr(held, "req_id_to_index", None)
        if done is None or index is None:
            return []
        return [(request, tokens, int(done[index[request]])) for request, tokens in batch.items()]

    @staticmethod
    def _contained(call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:  # the engine goes on
            from msprobe._common import log

            log.warning(f"msprobe: {error}; this step is not captured")

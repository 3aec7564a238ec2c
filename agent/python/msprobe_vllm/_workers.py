"""Finds the model runner of each worker, as soon as there is one."""

import functools
import os
from typing import Any

from msprobe_vllm._runner_window import RunnerWindow
from msprobe_vllm._settings import dump_config_path, judges_replies


def follow(wrapper: type[Any]) -> None:
    """After init_device of vLLM's WorkerWrapperBase, where a worker makes its runner, the runner is watched."""
    original = wrapper.init_device
    if getattr(original, "_msprobe", False):
        return

    @functools.wraps(original)
    def init_device(self: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(self, *arguments, **keywords)
        watch(self.worker)
        return result

    init_device._msprobe = True  # type: ignore[attr-defined]
    wrapper.init_device = init_device


def watch(worker: Any) -> None:
    """Captures what the worker's runner computes, if a configuration asks for it. What is wrong with it is raised."""
    judged = judges_replies(worker.vllm_config.additional_config)
    if type(worker).__module__.split(".")[0] == "vllm_ascend":
        if judged:
            from msprobe._common import log

            log.warning("msprobe: judge_replies has no effect under vllm-ascend")
        return
    path = dump_config_path(worker.vllm_config.additional_config)
    if path is None:
        return
    from msprobe.pytorch import AclGraphDumper, PrecisionDebugger

    if _is_eager(worker.vllm_config):
        RunnerWindow(worker.model_runner, PrecisionDebugger(path), judged).open()
        return
    # A graph out of a cache was traced without probes.
    os.environ["VLLM_USE_AOT_COMPILE"] = "0"
    os.environ["VLLM_DISABLE_COMPILE_CACHE"] = "1"
    RunnerWindow(worker.model_runner, AclGraphDumper(path), judged).open()


def _is_eager(config: Any) -> bool:
    return bool(config.model_config.enforce_eager)


class WorkerExtension:
    """What collective_rpc can ask of a worker."""

    model_runner: Any

    def msprobe_status(self) -> dict[str, Any]:
        """Whether this worker captures, into which dump_path, and the number of its next step."""
        window = RunnerWindow.of(self.model_runner)
        return {"capturing": False} if window is None else window.status()

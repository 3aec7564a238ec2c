"""Capture inside vLLM itself, whose runner knows nothing of msprobe: no patch, one flag.

    vllm serve MODEL --enforce-eager --additional-config '{"dump_config": {"task": "statistics", "level": "L1", ...}}'
    MSPROBE_CONFIG=/path/config.json vllm serve MODEL --enforce-eager

The plugin (entry point ``vllm.general_plugins``) is there once msprobe-agent is installed, and does nothing without one
of the two. Where plugins are switched off (VLLM_PLUGINS), ``--worker-extension-cls msprobe_vllm.WorkerExtension`` does
the same. Under vllm-ascend, which calls msprobe by itself, it stays away.
"""

from typing import Any

__all__ = ["WorkerExtension", "register"]


def register() -> None:
    """Lets every worker that is made in this process look for a dump configuration. A second call has no effect."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    from msprobe_vllm._workers import follow

    follow(WorkerWrapperBase)


def __getattr__(name: str) -> Any:
    """Naming WorkerExtension, as vLLM does where --worker-extension-cls says so, registers."""
    if name != "WorkerExtension":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from msprobe_vllm._workers import WorkerExtension

    register()
    return WorkerExtension

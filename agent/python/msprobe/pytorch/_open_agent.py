"""Opening the session of this process, with what capture asks of torch's Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe import _agent
from msprobe._common import opening
from msprobe._common.config_file import ConfigFile
from msprobe.pytorch._communication import Communications
from msprobe.pytorch._describe import describe
from msprobe.pytorch._with_tensors import with_tensors


class TorchConfigFile(ConfigFile):
    native = _agent


def distributed_rank() -> int | None:
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def tell_of_other_ranks() -> None:
    """Whether reducers of several ranks may write gradients: edges say then that nobody counts writes there."""
    dist = torch.distributed
    _agent.share_gradients(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def open_agent(config: Any, rank: int | None, pass_failed: Callable[[], None]) -> Any:
    """As opening.open_agent. pass_failed is called where a forward pass of a served batch raised."""
    return opening.open_agent(
        _agent.Agent,
        config,
        rank,
        framework="pytorch",
        framework_version=torch.__version__,
        describe=describe,
        communication=Communications().describe,
        with_tensors=with_tensors,
        pass_failed=pass_failed,
    )

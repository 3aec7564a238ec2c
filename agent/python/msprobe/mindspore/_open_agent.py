"""Opening the session of this process, with what capture asks of MindSpore's Python."""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore import communication

from msprobe import _mindspore
from msprobe._common import opening
from msprobe.mindspore._describe import describe

# The class of all element types.
_NUMBER = next(kind for kind in type(mindspore.float32).__mro__ if kind.__name__ == "Number")


def distributed_rank() -> int | None:
    return communication.get_rank() if communication.GlobalComm.INITED else None


def open_agent(config: Any, rank: int | None) -> Any:
    return opening.open_agent(
        _mindspore.Agent,
        config,
        rank,
        framework="mindspore",
        framework_version=mindspore.__version__,
        tensor_class=mindspore.Tensor,
        dtype_class=_NUMBER,
        describe=describe,
    )

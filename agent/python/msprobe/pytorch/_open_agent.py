"""Opening the session of this process, for whatever captures into it."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from msprobe import _agent
from msprobe._common.errors import MsprobeError
from msprobe._common.thread_lanes import ThreadLanes
from msprobe.pytorch._describe import describe
from msprobe.pytorch._with_tensors import with_tensors

PACKAGE = Path(__file__).resolve().parent.parent


class Service:
    """What user code reads of ``debugger.service``."""

    def __init__(self) -> None:
        self.loop = 0
        self.init_step = 0
        self.current_iter = 0
        self.data_collector = None


def distributed_rank() -> int | None:
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def open_agent(config: Any, rank: int | None, pass_failed: Callable[[], None]) -> Any:
    """The agent of a checked configuration. MsprobeError says what of it cannot be had."""
    program = Path(sys.argv[0] or "python").name
    try:
        return _agent.Agent(
            config=config,
            run=config.run or _agent.choose_run_name(program),
            rank=rank,
            process_id=os.getpid(),
            server_binary=_server_binary(),
            framework_version=torch.__version__,
            program=program,
            own_directory=str(PACKAGE),
            describe=describe,
            thread_lane=ThreadLanes().current,
            with_tensors=with_tensors,
            pass_failed=pass_failed,
        )
    except ValueError as error:
        raise MsprobeError(str(error)) from None


def _server_binary() -> str:
    beside = Path(sys.executable).parent / "msprobe-server"
    return os.environ.get("MSPROBE_SERVER_BINARY") or (
        str(beside) if beside.exists() else shutil.which("msprobe-server") or ""
    )

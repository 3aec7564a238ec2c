"""Opening the session of this process, for whatever captures into it."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from msprobe import _agent
from msprobe._common.errors import MsprobeError
from msprobe._common.thread_slots import ThreadSlots

PACKAGE = Path(__file__).resolve().parent.parent


def open_agent(config: Any, rank: int | None, **of_framework: Any) -> Any:
    """The agent of a checked configuration. MsprobeError says which part of it cannot be had.

    of_framework: framework_version, and the callbacks that capture.h describes (Capture.Callbacks).
    """
    program = Path(sys.argv[0] or "python").name
    try:
        return _agent.Agent(
            config=config,
            run=config.run or _agent.choose_run_name(program),
            rank=rank,
            process_id=os.getpid(),
            server_binary=_server_binary(),
            program=program,
            own_directory=str(PACKAGE),
            thread_slot=ThreadSlots().current,
            **of_framework,
        )
    except ValueError as error:
        raise MsprobeError(str(error)) from None


def _server_binary() -> str:
    beside = Path(sys.executable).parent / "msprobe-server"
    return os.environ.get("MSPROBE_SERVER_BINARY") or (
        str(beside) if beside.exists() else shutil.which("msprobe-server") or ""
    )

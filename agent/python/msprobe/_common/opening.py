"""Opening the session of this process, for whatever captures into it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.arguments import in_utf8
from msprobe._common.errors import MsprobeError
from msprobe._common.native import extension
from msprobe._common.thread_slots import ThreadSlots

PACKAGE = Path(__file__).resolve().parent.parent
_frameworks: dict[str, str] = {}  # run -> the first of this process to be captured into it


def open_agent(agent_class: Any, config: Any, rank: int | None, framework: str, **of_framework: Any) -> Any:
    """The agent of a checked configuration. MsprobeError says which part of it cannot be had.

    agent_class: of the framework's extension. of_framework: framework_version, and what else its constructor takes.
    """
    program = in_utf8(Path(sys.argv[0] or "python").name)
    try:
        return agent_class(
            config=config,
            run=_run_name(config.run or extension.choose_run_name(program), framework),
            rank=rank,
            process_id=os.getpid(),
            server_binary=_server_binary(),
            program=program,
            program_path=os.fsencode(Path(sys.argv[0]).absolute()),
            own_directory=str(PACKAGE),
            thread_slot=ThreadSlots().current,
            **of_framework,
        )
    except ValueError as error:
        raise MsprobeError(str(error)) from None


def _run_name(name: str, framework: str) -> str:
    """The second framework of a process has a run of its own: in the same one it would hide the first's ranks."""
    first = _frameworks.setdefault(name, framework)
    if first == framework:
        return name
    other = f"{name}-{framework}"
    log.info(f"{first} of this process is captured into run {name!r}, {framework} into run {other!r}")
    return other


def _server_binary() -> str:
    beside = Path(sys.executable).parent / "msprobe-server"
    return os.environ.get("MSPROBE_SERVER_BINARY") or (
        str(beside) if beside.exists() else shutil.which("msprobe-server") or ""
    )

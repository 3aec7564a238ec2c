"""Errors of the program's operators. MindSpore raises one once, at whatever waits for them next: maybe a read of ours.

The program gets it where the recorded call, the optimizer's step or the debugger's method returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe import _mindspore
from msprobe._common import log


def raise_program_error() -> None:
    """Raises what was kept, if anything was."""
    if (error := _mindspore.take_program_error()) is not None:
        raise error


def unless_it_fails(change: Callable[[Any], Any], value: Any) -> Any:
    """What change gives; the value itself where it raises. An error that does not come again is the program's."""
    try:
        return change(value)
    except Exception as error:
        first = error
    try:
        changed = change(value)
    except Exception as error:
        if (kept := _mindspore.take_program_error()) is not None:  # which is why
            _mindspore.keep_program_error(kept)
        else:
            log.error(f"a call is recorded without its gradients: {str(error).partition(chr(10))[0]}")
        return value
    _mindspore.keep_program_error(first)
    return changed


__all__ = ["raise_program_error", "unless_it_fails"]

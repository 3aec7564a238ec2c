"""What is raised at a user, where a configuration or a call is wrong."""

from __future__ import annotations

import sys
from types import TracebackType


class MsprobeError(Exception):
    """A wrong configuration or a wrong call; the message says what is wrong, the value, and what would be right."""


def end_with_message(error: MsprobeError) -> None:
    """A program that does not catch this error ends with its message alone: where it was raised says nothing more."""
    former = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        if raised is error:
            print(f"msprobe: {error}", file=sys.stderr)
        else:
            former(kind, raised, trace)

    sys.excepthook = hook

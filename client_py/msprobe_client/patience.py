"""Calls of a server that is away for a while: it restarts, or was not started yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from msprobe_client.errors import ClientClosed, ServerUnavailable

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

T = TypeVar("T")


def patiently(call: Callable[[], T], away: Callable[[ServerUnavailable], None]) -> T:
    """The call's answer, as soon as a server gives one. away: told once, of the first failure.

    ClientClosed: the client was closed, so none will.
    """
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except ClientClosed:
            raise
        except ServerUnavailable as error:
            if pause == _FIRST_PAUSE_S:
                away(error)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

"""What may not raise into the program while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe._common import log


class UntilFirstError:
    """Calls what it is given, until something raises: that is said once, and nothing is called from then on."""

    def __init__(self, what: str) -> None:
        """what: of the warning, "the training is watched"."""
        self._what = what
        self._failed = False

    def __call__(self, show: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            show()
        except Exception as error:
            self._failed = True
            log.warning(f"{self._what} no more: {type(error).__name__}: {error}")


def contained(what: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, whose errors are said and go no further; it gives None then. what: of the warning, "TrainerMon"."""

    def call(*given: Any) -> Any:
        try:
            return hook(*given)
        except Exception as error:
            log.warning(f"a hook of {what} raised {type(error).__name__}: {error}")
            return None

    return call


__all__ = ["UntilFirstError", "contained"]

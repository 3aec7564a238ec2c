"""A call once more, on other arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msprobe._common.nested import instances, mapped

if TYPE_CHECKING:
    from typing import Self


class NotRepeatable(Exception):
    """Why a call has no second run. It says nothing about the call."""


class Arguments:
    """Those of one call. A framework's class says what its tensors are."""

    kind: type  # of tensors

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self.tensors = list({id(each): each for each in instances((args, kwargs), self.kind)}.values())

    def mapped(self, change: Callable[[Any], Any]) -> Self:
        """With change(tensor) for each tensor. One that stands in two places is changed once."""
        changed = {id(tensor): change(tensor) for tensor in self.tensors}
        args, kwargs = mapped((self._args, self._kwargs), self.kind, lambda tensor: changed[id(tensor)])
        return type(self)(args, kwargs)

    def call(self, function: Callable[..., Any]) -> Any:
        return function(*self._args, **self._kwargs)

    def refuse_unrepeatable(self) -> None:
        """NotRepeatable: the call draws numbers, or what runs now is recorded for later."""
        raise NotImplementedError


__all__ = ["Arguments", "NotRepeatable"]

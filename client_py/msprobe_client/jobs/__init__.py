"""Kinds of jobs: what a worker does with an item. A kind is one file here and one line in KINDS.

A kind's module has

    def run(work: Work) -> bytes            the item's result, at most 64 KiB
    def show(result: bytes) -> dict         the result for people, as columns; may be absent
    def verdict(result: bytes) -> str       its one word for lists and metrics, at most 32 bytes; may be absent

An exception of `run` is the item's verdict "failed", with its text. A death of the process is the item's too: it is
tried again, and after JobLimits.attempts its verdict is "crashed".
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from msprobe_client.errors import InvalidArgument

if TYPE_CHECKING:
    from msprobe_client.client import Client

KINDS = {
    "check": "msprobe_client.jobs.check",
    "export": "msprobe_client.jobs.export",
    "sensitivity": "msprobe_client.jobs.sensitivity",
}


@dataclass(frozen=True, slots=True)
class Work:
    """An item to run. payload and options are messages of the kind."""

    client: Client  # of the server that has the run
    run: str
    options: bytes  # of the job
    name: str
    payload: bytes
    device: str  # cpu, cuda:N or npu:N
    attempt: int  # from 1
    job: int = 0  # its number


def modules(names: Iterable[str]) -> dict[str, str]:
    """The module of each kind. A name is one of KINDS, or KIND=MODULE for one's own; no names: all of KINDS."""
    chosen = {}
    for name in names:
        kind, given, module = name.partition("=")
        if given and kind and module:
            chosen[kind] = module
        elif kind in KINDS and not given:
            chosen[kind] = KINDS[kind]
        else:
            raise InvalidArgument(f"{name!r} is no kind of job; there are {', '.join(KINDS)}, and KIND=MODULE")
    return chosen or dict(KINDS)


def function(module: str) -> Callable[[Work], bytes]:
    """Imports a kind. InvalidArgument: it cannot be imported, or has no function `run`."""
    try:
        return cast("Callable[[Work], bytes]", importlib.import_module(module).run)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"{module} is no module of a job's kind: {error}") from None


def verdict(module: str, result: bytes) -> str:
    """The one word of a kind that has any, else nothing."""
    word = getattr(importlib.import_module(module), "verdict", None)
    return str(word(result)) if word is not None else ""


def shown(kind: str, result: bytes) -> dict[str, Any]:
    """A result for people; of a kind that is not known here, its size."""
    module = KINDS.get(kind)
    show = getattr(importlib.import_module(module), "show", None) if module else None
    return show(result) if show is not None and result else {"bytes": len(result)}

"""Explains why a captured step has no record, and what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_FILTERS = ("list", "scope", "data_mode")


def why_empty(
    level: str,
    asked: Mapping[str, Any],
    models: Sequence[Any],
    tokens: tuple[int, int] | None,
    *,
    passes: bool,
    calls: bool,
) -> str:
    """The reason, as part of a sentence.

    asked: fields of the configuration and of the task's section. passes: whether the model ran a forward pass. calls:
    whether the program made calls that the level captures, whether or not a filter wants them.
    """
    if calls:
        filters = ", ".join(f"{name} {asked[name]!r}" for name in _FILTERS if asked.get(name))
        return f"calls were made, and none is wanted by the filters of the configuration ({filters}); widen these"
    if models and not passes:
        return (
            "no forward pass of the model ran between start() and step(); give start() the cell that the program calls"
        )
    if tokens is not None:
        return f"no forward pass of token_range {list(tokens)} ran; they are counted from 0 at each start()"
    return (
        f"nothing that level {level} captures was called between start() and stop(); level mix with "
        "start(model) records most"
    )

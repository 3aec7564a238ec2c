"""Explains why a captured step has no record, and what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_FILTERS = ("list", "scope", "risk_level", "data_mode")


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
    roots = [root for model in models for root in (model if isinstance(model, list) else [model])]
    if calls:
        given = {name: asked[name] for name in _FILTERS if asked.get(name)} or {"risk_level": "FOCUS"}
        filters = ", ".join(f"{name} {value!r}" for name, value in given.items())
        return f"calls were made, and none is wanted by the filters of the configuration ({filters}); widen these"
    if any(map(_is_compiled, roots)):
        return (
            "the model is compiled by torch.compile and runs as one graph, without calls of its modules and APIs; "
            "compile it while AclGraphDumper captures, start() with the model as it was before, or set "
            '"capture": "all" for what goes into the whole model and comes out'
        )
    if roots and not passes:
        return (
            "no forward pass of the model ran between start() and step(); give start() the module that the program "
            "calls"
        )
    if tokens is not None:
        return f"no forward pass of token_range {list(tokens)} ran; they are counted from 0 at each start()"
    if level == "L0" and roots and not any(any(root.children()) for root in roots):
        kinds = ", ".join(type(root).__name__ for root in roots)
        return (
            f"level L0 records the modules inside the model, and {kinds} has none; "
            'set "capture": "all", which records the model itself, or level mix'
        )
    return (
        f"nothing that level {level} captures was called between start() and stop(); what torch.compile has "
        'compiled makes no such calls (AclGraphDumper captures it), and "capture": "all" records more'
    )


def _is_compiled(module: torch.nn.Module) -> bool:
    """By torch.compile(module), or module.compile()."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None

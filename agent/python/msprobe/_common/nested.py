"""Values that hold others: what is found inside, and the same with others in its place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any


def mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A value like this one, with change(each) for each instance of `kind` in it, in depth-first order.

    Lists, tuples and dicts, also of the user's own classes, are copied where something inside is replaced; all else
    stays the object it is.
    """
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        items = {key: mapped(item, kind, change) for key, item in value.items()}
        if all(items[key] is item for key, item in value.items()):
            return value
        made: Any = copy.copy(value)
        for key, item in items.items():
            made[key] = item
        return made
    if not isinstance(value, (list, tuple)):
        return value
    parts = [mapped(item, kind, change) for item in value]
    if all(new is old for new, old in zip(parts, value)):
        return value
    if isinstance(value, list):
        made = copy.copy(value)
        made[:] = parts
        return made
    return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)


def instances(value: Any, kind: type) -> list[Any]:
    """Those of `kind` in a value, in depth-first order."""
    found: list[Any] = []

    def note(each: Any) -> Any:
        found.append(each)
        return each

    mapped(value, kind, note)
    return found

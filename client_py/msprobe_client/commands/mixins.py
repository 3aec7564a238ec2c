"""Options that several subcommands take, as groups: a dataclass whose fields are typer's parameters.

A subcommand's run has one parameter of the group's type, where the group's options stand in its help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")

_MARK = "__msprobe_mixin__"


def mixin(group: type[T]) -> type[T]:
    """Makes the class a group. Its fields all have defaults."""
    setattr(group, _MARK, True)
    return dataclass(frozen=True)(group)


def expanded(run: Callable[..., None]) -> Callable[..., None]:
    """run as typer is to see it: with the options of its groups as parameters of its own."""
    hints = get_type_hints(run, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hasattr(hint, _MARK)}
    if not groups:
        return run
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(run).parameters.values():
        if parameter.name in groups:
            parameters += _parameters(groups[parameter.name])
        else:
            parameters.append(_parameter(parameter.name, hints[parameter.name], parameter.default))

    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        run(**given)

    call.__name__, call.__doc__, call.__module__ = run.__name__, run.__doc__, run.__module__
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        assert field.default is not MISSING
        yield _parameter(field.name, hints[field.name], field.default)


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)

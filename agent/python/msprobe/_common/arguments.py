"""The arguments of PrecisionDebugger's methods: each check gives the value, or raises what would be right."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe._common.errors import MsprobeError
from msprobe.select import Predicate

_TENSORS = ("torch.Tensor", "mindspore.Tensor")  # package and class
Rows = tuple[int, int, int]  # tokens of the batch, and the request's first and behind its last


def is_integer(value: Any) -> bool:
    """An int, or what stands for one (numpy's); not a bool."""
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return not _is_tensor(value)


def _is_tensor(value: Any) -> bool:
    """Of a framework, which need not be imported for this."""
    return any(f"{kind.__module__.partition('.')[0]}.{kind.__name__}" in _TENSORS for kind in type(value).__mro__)


def text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise MsprobeError(f"{name} is {value!r}; it should be a string")
    if value is not None and value != in_utf8(value):  # a surrogate: a byte of a file's name that is not UTF-8
        raise MsprobeError(f"{name} is {value!r}; it should be text in UTF-8")
    return value


def in_utf8(value: str) -> str:
    """The text with ? for what UTF-8 has no place for."""
    return value.encode(errors="replace").decode()


def names(value: Any, name: str) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise MsprobeError(f"{name} is {value!r}; it should be a list of strings")
    return list(value)


def selector(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Predicate):
        raise MsprobeError(f"select is {value!r}; it should be a predicate of msprobe.select, or its text")
    return str(value)


def boolean(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise MsprobeError(f"{name} is {value!r}; it should be True or False")
    return value


def step_texts(step: Any) -> list[str] | None:
    if step is None:
        return None
    if not isinstance(step, (list, tuple)):
        raise MsprobeError(f"step is {step!r}; it should be a list of integers, or of strings like '3' or '3-5'")
    for each in step:
        if not isinstance(each, str) and not is_integer(each):
            raise MsprobeError(f"step element {each!r} must be an integer or string")
    return [str(each) for each in step]


def json_text(value: Any, name: str) -> str | None:
    if value is None:
        return None
    try:
        return json.dumps(dict(value))
    except (TypeError, ValueError):
        raise MsprobeError(f"{name} is {value!r}; it should be a dict, as in config.json") from None


def seconds(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise MsprobeError(f"{name} is {value!r}; it should be a number of seconds, at least 0")
    return float(value)


def init_step(step: Any) -> int:
    if not is_integer(step) or step < 0:
        raise MsprobeError(f"init step is {step!r}; it should be an integer of at least 0")
    return operator.index(step)


def rank_id(value: Any) -> int | None:
    if value is None:
        return None
    if not is_integer(value) or value < 0:
        raise MsprobeError(f"rank_id is {value!r}; it should be an integer of at least 0")
    return operator.index(value)


def token_range(value: Sequence[int] | None) -> tuple[int, int] | None:
    if value is None:
        return None
    rule = "it should be two integers [first, last], 0 <= first <= last"
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(is_integer(each) for each in value):
        raise MsprobeError(f"token_range is {value!r}; {rule}")
    first, last = (operator.index(each) for each in value)
    if not 0 <= first <= last < 2**32:
        raise MsprobeError(f"token_range is {value!r}; {rule}")
    return first, last


def scheduled_tokens(value: Mapping[str, int] | None) -> dict[str, int] | None:
    if value is None:
        return None
    rule = "it should be a dict from request ids to numbers of tokens, which are integers of at least 1"
    if not isinstance(value, Mapping):
        raise MsprobeError(f"scheduled_tokens is {value!r}; {rule}")
    for request, tokens in value.items():
        if not isinstance(request, str) or not is_integer(tokens) or tokens < 1:
            raise MsprobeError(f"scheduled_tokens has {request!r}: {tokens!r}; {rule}")
    return {request: operator.index(tokens) for request, tokens in value.items()}


def request_rows(request: str, scheduled: Mapping[str, int]) -> Rows | None:
    """Where a request's tokens stand in the batch, which has the requests in the dict's order. None: nowhere."""
    if request not in scheduled:
        return None
    begin = 0
    for each, tokens in scheduled.items():
        if each == request:
            break
        begin += tokens
    return sum(scheduled.values()), begin, begin + scheduled[request]


def models(value: Any, kind: type, shown: str) -> list[Any]:
    """A list that holds the model, or the list of models as one. kind: the framework's class of modules, shown so."""
    if value is None:
        return []
    several = isinstance(value, (list, tuple))
    for each in value if several else [value]:
        if not isinstance(each, kind):
            raise MsprobeError(f"model is a {type(each).__name__}; it should be a {shown} or a list of them")
    return [list(value)] if several else [value]

"""The arguments of PrecisionDebugger.log."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from msprobe._common import log

_LONGEST_NAME = 256
_LAST_STEP = 2**32 - 1
_told: set[str] = set()


def accepted(values: Any, step: Any, tensor_class: Any) -> list[tuple[str, Any]]:
    """Names, and for each a float or a tensor of one element. What is wrong is left out, and said once."""
    if not isinstance(values, Mapping):
        return _refuse(f"the values are a {type(values).__name__}; they should be a dict of names and numbers")
    is_step = isinstance(step, numbers.Integral) and not isinstance(step, bool) and 0 <= int(step) <= _LAST_STEP
    if step is not None and not is_step:
        # What a device's tensor holds would have to be waited for.
        shown = repr(step) if isinstance(step, (numbers.Real, str)) else _shown(step, tensor_class)
        return _refuse(f"step is {shown}; it should be an int from 0 to {_LAST_STEP}")
    taken = []
    try:
        given = list(values.items())
    except Exception as error:  # the mapping's own
        return _refuse(f"the values cannot be read: {type(error).__name__}: {error}")
    for name, value in given:
        wrong = _wrong_name(name)
        number = None if wrong else _number(value, tensor_class)
        if not wrong and number is None and isinstance(value, numbers.Integral):
            wrong = f"{name!r} is an integer of {int(value).bit_length()} bits, which no float64 holds"
        elif not wrong and number is None:
            wrong = f"{name!r} is {_shown(value, tensor_class)}; it should be a number or a tensor of one element"
        if wrong:
            _refuse(wrong)
        else:
            taken.append((name, number))
    return taken


def _wrong_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        return f"a name is {name!r}; it should be a text that is not empty"
    if len(name) > _LONGEST_NAME or not name.isprintable():
        return f"the name {name[:40]!r} should have at most {_LONGEST_NAME} characters, all of them printable"
    return ""


def _number(value: Any, tensor_class: Any) -> Any:
    """None: it is none."""
    if isinstance(value, tensor_class):
        return value if math.prod(value.shape) == 1 and not _is_complex(value) else None
    is_number = isinstance(value, numbers.Real) or (getattr(value, "shape", None) == () and hasattr(value, "__float__"))
    if not is_number:
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def _is_complex(tensor: Any) -> bool:
    return "complex" in str(tensor.dtype).lower()


def _shown(value: Any, tensor_class: Any) -> str:
    if isinstance(value, tensor_class):
        return f"a tensor of shape {list(value.shape)} and dtype {value.dtype}"
    return f"of type {type(value).__name__}"


def _refuse(wrong: str) -> list[tuple[str, Any]]:
    if wrong not in _told and len(_told) < 100:
        _told.add(wrong)
        log.warning(f"log: {wrong}. It is left out.")
    return []


__all__ = ["accepted"]

"""Libraries that not everybody needs."""

from __future__ import annotations

import importlib
from typing import Any

from msprobe_client.errors import MsprobeError


class NotInstalled(MsprobeError):
    """A library that the request needs is not there."""


def extra(module: str, name: str) -> Any:
    """The module; `pip install msprobe-client[name]` installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotInstalled(
            f"this needs the library {module.partition('.')[0]}; pip install 'msprobe-client[{name}]'"
        ) from None

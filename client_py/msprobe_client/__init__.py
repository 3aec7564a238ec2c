"""Typed access to the runs of a msprobe-server.

>>> from msprobe_client import Client
>>> with Client("unix:/run/msprobe.sock") as client:
...     client.runs()

Names are imported when first used, so that `import msprobe_client` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from msprobe_client.access import Access as Access
    from msprobe_client.client import Client as Client
    from msprobe_client.errors import AccessDenied as AccessDenied
    from msprobe_client.errors import ClientClosed as ClientClosed
    from msprobe_client.errors import DataError as DataError
    from msprobe_client.errors import FailedPrecondition as FailedPrecondition
    from msprobe_client.errors import InvalidArgument as InvalidArgument
    from msprobe_client.errors import MsprobeError as MsprobeError
    from msprobe_client.errors import NotFound as NotFound
    from msprobe_client.errors import ServerError as ServerError
    from msprobe_client.errors import ServerUnavailable as ServerUnavailable
    from msprobe_client.model import CaptureSettings as CaptureSettings
    from msprobe_client.model import ControlAnswer as ControlAnswer
    from msprobe_client.model import ControlledProcess as ControlledProcess
    from msprobe_client.model import ControlNote as ControlNote
    from msprobe_client.model import DeleteReport as DeleteReport
    from msprobe_client.model import ExportReport as ExportReport
    from msprobe_client.model import Frame as Frame
    from msprobe_client.model import Gap as Gap
    from msprobe_client.model import ImportReport as ImportReport
    from msprobe_client.model import PayloadRef as PayloadRef
    from msprobe_client.model import Rank as Rank
    from msprobe_client.model import Record as Record
    from msprobe_client.model import RunSummary as RunSummary
    from msprobe_client.model import ServerInfo as ServerInfo
    from msprobe_client.model import StepSummary as StepSummary
    from msprobe_client.model import TensorStats as TensorStats

_HOMES = {
    "client": ("Client",),
    "access": ("Access",),
    "errors": (
        "AccessDenied",
        "ClientClosed",
        "DataError",
        "FailedPrecondition",
        "InvalidArgument",
        "MsprobeError",
        "NotFound",
        "ServerError",
        "ServerUnavailable",
    ),
    "model": (
        "CaptureSettings",
        "ControlAnswer",
        "ControlNote",
        "ControlledProcess",
        "DeleteReport",
        "ExportReport",
        "Frame",
        "Gap",
        "ImportReport",
        "PayloadRef",
        "Rank",
        "Record",
        "RunSummary",
        "ServerInfo",
        "StepSummary",
        "TensorStats",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

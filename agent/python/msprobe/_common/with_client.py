"""What msprobe-client does for a user of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msprobe._common.errors import MsprobeError

T = TypeVar("T")


def with_client(work: Callable[[], T]) -> T:
    """The result of work, which imports msprobe_client; its errors come as this package's."""
    try:
        from msprobe_client.errors import MsprobeError as ClientError
    except ImportError:
        raise MsprobeError("comparing needs msprobe-client: pip install msprobe-client") from None
    try:
        return work()
    except ClientError as error:
        raise MsprobeError(str(error)) from None


__all__ = ["with_client"]

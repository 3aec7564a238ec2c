"""What can go wrong, as exceptions whose text is one line for a person: what, where, and what to do.

Imports nothing: the command line loads this before it knows whether it needs gRPC.
"""

from __future__ import annotations


class MsprobeError(Exception):
    """Base of everything this package raises on purpose."""


class ServerUnavailable(MsprobeError):
    """No server answers at the address, or none could be started."""


class ServerError(MsprobeError):
    """The server failed at a request that is right."""


class AccessDenied(MsprobeError):
    """The server wants a token that it knows, with the role of the request."""


class NotFound(MsprobeError):
    """The run, step, rank or record does not exist."""


class InvalidArgument(MsprobeError):
    """A value is not allowed; the text names it and what is allowed."""


class FailedPrecondition(MsprobeError):
    """The request is right but not in this state: an ambiguous name, a directory that exists already."""


class MissingShardsWarning(UserWarning):
    """An answer lacks what servers of the cluster hold that did not answer. shards: model.MissingShard of each."""

    def __init__(self, shards: tuple[object, ...]) -> None:
        super().__init__("the answer is incomplete: " + "; ".join(map(str, shards)))
        self.shards = shards


class DataError(MsprobeError):
    """Files or answers do not have the form they must have; nothing was taken from them."""

"""Errors as exceptions with one line for a person: what is wrong, where, and what to do.

Imports nothing: the command line loads this before it knows whether it needs gRPC.
"""

from __future__ import annotations


class MsprobeError(Exception):
    """Base of everything this package raises on purpose."""


class ServerUnavailable(MsprobeError):
    """No server answers at the address, or none could be started."""


class ClientClosed(ServerUnavailable):
    """The client was closed before or during the call."""


class ServerError(MsprobeError):
    """The server failed at a correct request."""


class AccessDenied(MsprobeError):
    """The server asks for a known token with the role of the request."""


class NotFound(MsprobeError):
    """The run, step, rank or record does not exist."""


class InvalidArgument(MsprobeError):
    """A value is not allowed; the text names it and the allowed ones."""


class FailedPrecondition(MsprobeError):
    """The request is right but not in this state: an ambiguous name, a directory that exists already."""


class MissingShardsWarning(UserWarning):
    """An answer lacks the parts of servers that did not answer. shards: a model.MissingShard for each."""

    def __init__(self, shards: tuple[object, ...]) -> None:
        super().__init__("the answer is incomplete: " + "; ".join(map(str, shards)))
        self.shards = shards


class ServerGoneWarning(UserWarning):
    """A server whose answer is followed went away. It is waited for."""


class DataError(MsprobeError):
    """Files or answers do not have the form they must have; nothing was taken from them."""

"""A connection to one server: calls, and their failures as ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from msprobe_client import background_call, decode
from msprobe_client.access import Access
from msprobe_client.address import target_of
from msprobe_client.background_call import Pending, Stream
from msprobe_client.errors import (
    AccessDenied,
    ClientClosed,
    FailedPrecondition,
    InvalidArgument,
    MissingShardsWarning,
    MsprobeError,
    NotFound,
    ServerError,
    ServerUnavailable,
)
from msprobe_client.proto import query_pb2

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # How long one attempt to connect may take (the default is 20 s).
    ("grpc.min_reconnect_backoff_ms", 5000),
    # How long a server that is back may go unnoticed, at most (the default is 120 s).
    ("grpc.max_reconnect_backoff_ms", 5000),
    # The server is on this machine or in this cluster; a proxy for web pages is not the way to it.
    ("grpc.enable_http_proxy", 0),
)

# Of a server of one's own. gRPC widens what may be under way while answers wait for their reader, up to tens of MiB;
# over a unix socket that gains nothing.
_LOCAL_OPTIONS = (*_CHANNEL_OPTIONS, ("grpc.http2.bdp_probe", 0))

_MISSING_SHARDS = "msprobe-missing-shards-bin"

M = TypeVar("M")


class Connection:
    """Calls connect when first needed. Thread-safe.

    address: as Client has it. is_local: a server of one's own, which reads the directories of this machine and asks for
    no access. channel: of gRPC, for the stubs that make calls. A call is given as what starts it, and raises
    MsprobeError only; an answer without the part of a server of the cluster comes with a MissingShardsWarning.
    """

    def __init__(self, address: str, *, is_local: bool, access: Access | None = None) -> None:
        self.address = address
        self.is_local = is_local
        shown = Access() if is_local else (access or Access()).resolved()
        self.channel = shown.channel(target_of(address), _LOCAL_OPTIONS if is_local else _CHANNEL_OPTIONS)
        self._closed = False

    def close(self) -> None:
        """Cancels what is under way."""
        self._closed = True
        self.channel.close()

    def items(self, start: Callable[[], Stream[M]]) -> Iterator[M]:
        """The answers as they come. Asking for the first begins the call; leaving cancels it."""
        with self._ours():
            yield from background_call.stream(start, _warn_of_missing_shards)

    def result(self, start: Callable[[], Pending[M]], *, whole: bool = False) -> M:
        """The one answer. whole: if it lacks the part of a server of the cluster, ServerUnavailable in place of it."""
        with self._ours():
            return background_call.result(start, _refuse_missing_shards if whole else _warn_of_missing_shards)

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Failures of gRPC as ours."""
        closed = ClientClosed(f"the client of {self.address} is closed; make another one")
        if self._closed:
            raise closed
        try:
            yield
        except grpc.RpcError as error:
            raise (closed if self._closed else self._error(error)) from None
        except grpc.FutureCancelledError:
            raise closed from None
        except ValueError:  # what gRPC says where the channel was closed meanwhile
            if not self._closed:
                raise
            raise closed from None

    def _error(self, error: grpc.RpcError) -> MsprobeError:
        code = error.code()
        details = (error.details() or "no details").strip().replace("\n", " ")
        at = f"msprobe-server at {self.address}"
        if code == grpc.StatusCode.UNAVAILABLE:
            if "WRONG_VERSION_NUMBER" in details:  # BoringSSL's word for an answer that is no TLS
                return ServerUnavailable(
                    f"{at} speaks no TLS; leave out --ca (ca, MSPROBE_SERVER_CA), or give the port that does"
                )
            return ServerUnavailable(
                f"{at} cannot be reached ({details}); check that it runs and that the address is right, "
                "or read a data directory with --data_dir DIR"
            )
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return AccessDenied(f"{at} refused: {details}")
        if code == grpc.StatusCode.NOT_FOUND:
            return NotFound(details if self.is_local else f"{at}: {details}")
        if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE):
            return InvalidArgument(details if self.is_local else f"{at} refused the request: {details}")
        if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.ABORTED):
            return FailedPrecondition(details if self.is_local else f"{at} refused the request: {details}")
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return ServerError(f"{at} does not know this request ({details}); is it a msprobe-server of this version?")
        if code == grpc.StatusCode.CANCELLED:
            return ServerUnavailable(f"the call to {at} was cancelled ({details})")
        name = code.name if isinstance(code, grpc.StatusCode) else str(code)
        return ServerError(f"{at} failed with {name}: {details}; its log says more")


def _missing_shards(call: object) -> Iterator[MissingShardsWarning]:
    metadata: Iterable[tuple[str, bytes]] = getattr(call, "trailing_metadata", tuple)() or ()
    for key, value in metadata:
        if key == _MISSING_SHARDS:
            shards = query_pb2.MissingShards.FromString(value).shards
            yield MissingShardsWarning(tuple(map(decode.missing_shard, shards)))


def _warn_of_missing_shards(call: object) -> None:
    for warning in _missing_shards(call):
        warnings.warn(warning, stacklevel=2)


def _refuse_missing_shards(call: object) -> None:
    for warning in _missing_shards(call):
        raise ServerUnavailable(str(warning))

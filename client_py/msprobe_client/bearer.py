"""Adds a token to every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc


class _Details(grpc.ClientCallDetails):
    def __init__(self, of: grpc.ClientCallDetails, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self.method = of.method
        self.timeout = of.timeout
        self.metadata = metadata
        self.credentials = of.credentials
        self.wait_for_ready = of.wait_for_ready
        self.compression = of.compression


class Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Threads: any."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def _intercept(self, go_on: Callable[..., Any], details: grpc.ClientCallDetails, request: Any) -> Any:
        header = ("authorization", f"Bearer {self._token()}")
        return go_on(_Details(details, (*(details.metadata or ()), header)), request)

    intercept_unary_unary: Any = _intercept
    intercept_unary_stream: Any = _intercept
    intercept_stream_unary: Any = _intercept
    intercept_stream_stream: Any = _intercept

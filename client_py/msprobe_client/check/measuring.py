"""Sends pairs of tensors to the server, which measures them in one pass and judges them."""

from __future__ import annotations

import ctypes
import queue
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

import torch

from msprobe_client.errors import DataError
from msprobe_client.proto import check_pb2, record_pb2

if TYPE_CHECKING:
    from msprobe_client.client import Client

_CHUNK_BYTES = 1 << 20  # of the widest side; a message holds up to three


class Measuring:
    """One stream of outputs. One thread at a time."""

    def __init__(self, client: Client, policy: str) -> None:
        self._requests: queue.SimpleQueue[check_pb2.MeasureRequest | None] = queue.SimpleQueue()
        self._requests.put(check_pb2.MeasureRequest(policy=policy))
        self._responses = client.measure(iter(self._requests.get, None))
        self._sent = 0

    def __enter__(self) -> Measuring:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._requests.put(None)
        if isinstance(self._responses, Generator):
            self._responses.close()

    def measured(
        self, operation: str, output: torch.Tensor, golden: torch.Tensor, plain: torch.Tensor | None = None
    ) -> check_pb2.MeasureResponse:
        """Blocks until the answer is there."""
        for request in self._messages(operation, _flat(output), _flat(golden), None if plain is None else _flat(plain)):
            self._requests.put(request)
        for response in self._responses:
            return response
        raise DataError("the server's answer ended before the last output was measured")

    def _messages(
        self, operation: str, output: torch.Tensor, golden: torch.Tensor, plain: torch.Tensor | None
    ) -> Iterator[check_pb2.MeasureRequest]:
        self._sent += 1
        begin = check_pb2.MeasureRequest.Begin(
            id=self._sent, operation=operation, output=_content(output), golden=_content(golden)
        )
        if plain is not None and plain.shape == golden.shape:
            begin.plain.CopyFrom(_content(plain))
        else:
            plain = None
        count = output.numel()
        if count == 0 or output.shape != golden.shape or begin.output.dtype == record_pb2.DTYPE_UNSPECIFIED:
            yield check_pb2.MeasureRequest(begin=begin, end=True)
            return
        yield check_pb2.MeasureRequest(begin=begin)
        at_once = max(1, _CHUNK_BYTES // max(golden.element_size(), output.element_size()))
        for start in range(0, count, at_once):
            size = min(at_once, count - start)
            yield check_pb2.MeasureRequest(
                elements=check_pb2.MeasureRequest.Elements(
                    output=_bytes(output, start, size),
                    golden=_bytes(golden, start, size),
                    plain=b"" if plain is None else _bytes(plain, start, size),
                ),
                end=start + size == count,
            )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()


def _content(tensor: torch.Tensor) -> check_pb2.TensorContent:
    name = f"DTYPE_{str(tensor.dtype).removeprefix('torch.').upper()}"
    known = name in list(record_pb2.DType.keys())
    return check_pb2.TensorContent(
        dtype=record_pb2.DType.Value(name) if known else record_pb2.DTYPE_UNSPECIFIED, shape=tensor.shape
    )


def _bytes(tensor: torch.Tensor, start: int, count: int) -> bytes:
    size = tensor.element_size()
    return ctypes.string_at(tensor.data_ptr() + start * size, count * size)

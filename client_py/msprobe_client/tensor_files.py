"""Tensors in files of any form: Client.tensor_files gives it. docs/tensors.md."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from msprobe_client import decode, tensor_questions
from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.model import Number
from msprobe_client.output.whole_file import whole_file
from msprobe_client.proto import analysis_pb2, record_pb2, tensors_pb2, tensors_pb2_grpc
from msprobe_client.tensors import TensorPreview

if TYPE_CHECKING:
    from msprobe_client.connection import Connection

Kind: TypeAlias = Literal["equal", "close", "differs", "nan", "shape"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Suffix of a file: how it is written.
FORMATS = {
    ".npy": tensors_pb2.ConvertTensorsRequest.NPY,
    ".pt": tensors_pb2.ConvertTensorsRequest.PT,
    ".safetensors": tensors_pb2.ConvertTensorsRequest.SAFETENSORS,
    ".txt": tensors_pb2.ConvertTensorsRequest.TEXT,
}


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor of a file, and the layout to read it in."""

    path: Path
    name: str = ""  # empty: the only one
    stored: str = ""  # the layout in the file; empty: as the file says, else ND
    layout: str = ""  # empty: as it is stored
    sizes: tuple[int, ...] = ()  # without blocks; empty: as the file says
    block: int = 0  # C0 of the new layout; 0: 32 for elements of one byte, else 16

    def message(self) -> tensors_pb2.TensorPlace:
        return tensors_pb2.TensorPlace(
            path=str(self.path.absolute()),
            name=self.name,
            to=self.layout,
            sizes=self.sizes,
            block=self.block,
            **{"from": self.stored},
        )


@dataclass(frozen=True, slots=True)
class ListedTensor:
    name: str  # empty: the file is the tensor
    dtype: str
    shape: tuple[int, ...]
    layout: str
    sizes: tuple[int, ...]  # before a device arranged it; empty: the file does not say


@dataclass(frozen=True, slots=True)
class TensorsInFile:
    kind: str  # npy, pt, safetensors, atb, adump
    tensors: tuple[ListedTensor, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ElementPair:
    index: tuple[int, ...]
    target: Number
    golden: Number


@dataclass(frozen=True, slots=True)
class DiffSide:
    dtype: str
    shape: tuple[int, ...]
    layout: str


@dataclass(frozen=True, slots=True)
class TensorDiff:
    """How one tensor differs from another. metrics: docs/analysis.md defines each; None: other shapes."""

    kind: Kind
    target: DiffSide
    golden: DiffSide
    metrics: analysis_pb2.ElementMetrics | None
    rtol: float
    atol: float
    worst: tuple[ElementPair, ...]  # by |target - golden|
    over: tuple[ElementPair, ...]  # the first over the tolerance
    first: tuple[ElementPair, ...]


class TensorFiles:
    """Calls of msprobe.v1.Tensors, for a server of one's own, which reads the paths. Errors are MsprobeError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = tensors_pb2_grpc.TensorsStub(connection.channel)

    def listed(self, path: str | os.PathLike[str]) -> TensorsInFile:
        """What lies in a file; no element is read."""
        request = tensors_pb2.ListTensorsRequest(path=str(Path(path).absolute()))
        found: tensors_pb2.TensorsInFile = self._connection.result(lambda: self._stub.ListTensors.future(request))
        return TensorsInFile(
            found.kind,
            tuple(
                ListedTensor(each.name, _dtype(each.dtype), tuple(each.shape), each.layout, tuple(each.sizes))
                for each in found.tensors
            ),
            tuple(found.notes),
        )

    def preview(self, place: TensorPlace, *, bins: int = 20, top: int = 5) -> TensorPreview:
        """Statistics of a tensor, a histogram, its extreme elements."""
        request = tensors_pb2.SummarizeTensorRequest(place=place.message(), bins=bins, top=top)
        return tensor_questions.preview(self._connection.result(lambda: self._stub.SummarizeTensor.future(request)))

    def diff(
        self,
        target: TensorPlace,
        golden: TensorPlace,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        top: int = 5,
    ) -> TensorDiff:
        """How one tensor differs from another. rtol, atol: by default by dtype. top: elements in each list."""
        request = tensors_pb2.DiffTensorsRequest(
            target=target.message(), golden=golden.message(), rtol=rtol, atol=atol, top=top
        )
        found: tensors_pb2.TensorDiff = self._connection.result(lambda: self._stub.DiffTensors.future(request))
        return TensorDiff(
            kind=KINDS[found.kind],
            target=_side(found.target),
            golden=_side(found.golden),
            metrics=found.metrics if found.HasField("metrics") else None,
            rtol=found.rtol,
            atol=found.atol,
            worst=_pairs(found.worst),
            over=_pairs(found.over),
            first=_pairs(found.first),
        )

    def convert(
        self,
        place: TensorPlace,
        output: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Path:
        """Writes the elements as another file, whole or not at all: .npy, .pt, .safetensors (which takes all tensors
        where none is named) or .txt, as output ends. progress counts bytes."""
        target = Path(output)
        if target.suffix not in FORMATS:
            raise InvalidArgument(f"{output}: tensors are written as {', '.join(FORMATS)}")
        request = tensors_pb2.ConvertTensorsRequest(place=place.message(), format=FORMATS[target.suffix])
        done, ended = 0, False
        with whole_file(target) as scratch, scratch.open("xb") as file:
            for chunk in self._connection.items(lambda: self._stub.ConvertTensors(request)):
                done += file.write(chunk.content)
                ended = chunk.last
                progress(done, 0)
            if not ended:
                raise DataError(f"the server's answer ended in the middle of {target}")
        return target

    def named(self, place: TensorPlace) -> list[TensorPlace]:
        """The place by each name where it has none, and the file several tensors."""
        if place.name:
            return [place]
        return [replace(place, name=each.name) for each in self.listed(place.path).tensors]


def _dtype(number: record_pb2.DType.ValueType) -> str:
    return f"torch.{record_pb2.DType.Name(number).removeprefix('DTYPE_').lower()}"


def _side(message: tensors_pb2.TensorDiff.Side) -> DiffSide:
    return DiffSide(message.dtype, tuple(message.shape), message.layout)


def _pairs(messages: Any) -> tuple[ElementPair, ...]:
    return tuple(
        ElementPair(
            tuple(each.index),
            decode.exact(each.exact_target, each.target),
            decode.exact(each.exact_golden, each.golden),
        )
        for each in messages
    )

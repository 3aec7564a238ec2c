"""The arguments of a recorded call: real tensors where their content was saved, else drawn from their statistics."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch

from msprobe_client.errors import MsprobeError
from msprobe_client.model import Rank, Record, TensorStats

_WORDS = {"input_args": "input", "input_kwargs": "kwargs"}


class Contents(Protocol):
    """Where the files of tensors come from; a client is one."""

    def tensor(self, run: str, name: str, *, format: Any, step: int, rank: Rank) -> bytes: ...


Payload: TypeAlias = Callable[[str], bytes]
Draw: TypeAlias = Callable[[TensorStats], torch.Tensor]


class NotReplayable(Exception):
    """The call cannot be made again; the text says why."""


MINDSPORE = "mindspore"
MINDSPORE_DTYPES = {
    "Bool": torch.bool,
    "Int8": torch.int8,
    "UInt8": torch.uint8,
    "Int16": torch.int16,
    "Int32": torch.int32,
    "Int64": torch.int64,
    "Float16": torch.float16,
    "Float32": torch.float32,
    "Float64": torch.float64,
    "BFloat16": torch.bfloat16,
    "Complex64": torch.complex64,
    "Complex128": torch.complex128,
}
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_NEVER_MADE = "<NULL>"  # MindSpore's dtype of what a kernel was to give that could not run


def framework_of(record: Record) -> str:
    """By its tensors: pytorch or mindspore."""
    return MINDSPORE if any(stats.type.startswith(MINDSPORE) for _, stats in record.tensors()) else "pytorch"


def dtype_of(name: str) -> torch.dtype:
    if name in MINDSPORE_DTYPES:
        return MINDSPORE_DTYPES[name]
    if name == _NEVER_MADE:
        raise NotReplayable("a tensor of it was never computed: MindSpore has no kernel for it on that device")
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise NotReplayable(f"this torch has no {name}")
    return found


def from_file(file: bytes, stats: TensorStats) -> torch.Tensor:
    """The tensor of a .pt file as the server writes them: its bytes are one contiguous storage."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data/0")]
        content = archive.read(names[0]) if names else b""
    return from_bytes(content, stats)


def from_bytes(content: bytes, stats: TensorStats) -> torch.Tensor:
    """The tensor whose elements these are, in order."""
    dtype = dtype_of(stats.dtype)
    if not content:
        return torch.empty(stats.shape, dtype=dtype)
    count = len(content) // dtype.itemsize
    if count != math.prod(stats.shape):
        raise NotReplayable(f"a saved tensor has {count} elements, and its record says {list(stats.shape)}")
    return from_buffer(content, dtype, stats.shape)


def from_buffer(content: bytes, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    if not content:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(tuple(shape))


def drawn(stats: TensorStats, generator: torch.Generator) -> torch.Tensor:
    """A tensor of the recorded dtype and shape within the recorded range, which it reaches at both ends.

    It has as many NaN and infinities as were recorded, and a negative zero where the range holds 0.
    """
    dtype = dtype_of(stats.dtype)
    count = math.prod(stats.shape)
    low, high = finite_range(stats)
    if dtype == torch.bool:
        flat = torch.rand(count, generator=generator) < 0.5
        if low == high:
            flat = torch.full((count,), bool(high))
    elif dtype.is_floating_point or dtype.is_complex:
        flat = torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low
        ends = [low, high][:count]
        flat[: len(ends)] = torch.tensor(ends, dtype=torch.float64)
        if dtype.is_complex:
            flat = torch.complex(flat, torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low)
        elif low <= 0 <= high and count > 4:
            flat[2] = -0.0
        _plant(flat, stats)
        flat = flat.to(dtype)
    else:
        top = int(high) + 1
        bottom = min(int(low), top - 1)
        flat = torch.randint(bottom, min(top, 2**63 - 1), (count,), generator=generator).to(dtype)
        whole = [bottom, top - 1][:count]
        flat[: len(whole)] = torch.tensor(whole).to(dtype)
    return flat.reshape(stats.shape)


def finite_range(stats: TensorStats) -> tuple[float, float]:
    """The least and the largest finite number, as far as they are known; else 0 and 1."""
    low, high = stats.finite_min, stats.finite_max
    if low is None or high is None:
        low, high = (end if end is not None and math.isfinite(end) else None for end in (stats.min, stats.max))
    known = [end for end in (low, high) if end is not None] or [0.0, 1.0]
    return known[0], known[-1]


def _plant(flat: torch.Tensor, stats: TensorStats) -> None:
    """NaN and infinities at the end, where the ends of the range are not."""
    planted: list[float] = []
    recorded = (
        (float("nan"), stats.nan_count, (stats.max, stats.min)),
        (float("inf"), stats.positive_inf_count, (stats.max,)),
        (float("-inf"), stats.negative_inf_count, (stats.min,)),
    )
    for value, count, ends in recorded:
        said = any(isinstance(end, float) and (end == value or (math.isnan(end) and math.isnan(value))) for end in ends)
        planted += [value] * (count or (1 if said else 0))
    planted = planted[: flat.numel()]
    if planted:
        flat[-len(planted) :] = torch.tensor(planted, dtype=flat.dtype)


@dataclass
class Arguments:
    args: list[Any]
    kwargs: dict[str, Any]
    source: str = "saved"  # "drawn": at least one tensor was
    # The tensors among them with the names of their places, in order.
    tensors: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    needs_grad: list[bool] = field(default_factory=list)

    def mapped(self, change: Callable[[torch.Tensor], Any], scalar: Callable[[Any], Any] = lambda x: x) -> Arguments:
        """A copy with other tensors."""
        made = Arguments([], {}, self.source)
        made.needs_grad = self.needs_grad
        places = {id(tensor): place for place, tensor in self.tensors}

        def walk(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                new = change(value)
                made.tensors.append((places[id(value)], new))
                return new
            if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
                return type(value)(walk(item) for item in value)
            if isinstance(value, dict):
                return {key: walk(item) for key, item in value.items()}
            return scalar(value)

        made.args = walk(self.args)
        made.kwargs = walk(self.kwargs)
        return made


class Loader:
    """Makes arguments of records of one run. seed: of what is drawn; each tensor's is that and its name's. payload:
    gives the bytes of a saved tensor by their hash; else its file is asked for by name. draw: instead of `drawn`.

    Those of the last record are kept: its backward call comes next. One thread at a time.
    """

    def __init__(
        self, contents: Contents, run: str, seed: int, payload: Payload | None = None, draw: Draw | None = None
    ) -> None:
        self._payload = payload
        self._draw = draw
        self._contents = contents
        self._run = run
        self._seed = seed
        self._last: tuple[Record, Arguments] | None = None

    def arguments(self, record: Record) -> Arguments:
        """Raises NotReplayable for what cannot be made here. Nobody changes what is given."""
        if self._last is None or self._last[0] is not record:
            self._last = None  # before another's tensors come
            self._last = (record, self._made(record))
        return self._last[1]

    def _made(self, record: Record) -> Arguments:
        if "input_args" not in record.fields and "input_kwargs" not in record.fields:
            raise NotReplayable("its inputs were not captured")
        made = Arguments([], {})

        def walk(place: str, value: Any) -> Any:
            if isinstance(value, TensorStats):
                tensor = self.tensor(record, place, value)
                if value.payload is None:
                    made.source = "drawn"
                made.tensors.append((place.removeprefix(f"{record.full_name}."), tensor))
                made.needs_grad.append(_needs_grad(value, tensor))
                return tensor
            if isinstance(value, dict) and set(value) >= {"type", "value"} and isinstance(value["type"], str):
                return _special(value["type"], value["value"])
            if isinstance(value, dict) and set(value) == {"type"}:
                return _special(value["type"], None)
            if isinstance(value, dict):
                return {key: walk(f"{place}.{key}", item) for key, item in value.items()}
            if isinstance(value, list):
                return [walk(f"{place}.{index}", item) for index, item in enumerate(value)]
            return value

        try:
            made.args = walk(f"{record.full_name}.input", record.fields.get("input_args") or [])
            made.kwargs = walk(f"{record.full_name}.kwargs", record.fields.get("input_kwargs") or {})
        except NotReplayable:
            raise
        except (TypeError, ValueError, OverflowError, MemoryError, RuntimeError) as error:  # a record says anything
            lines = str(error).splitlines() or [type(error).__name__]
            raise NotReplayable(f"an argument cannot be made: {lines[0]}") from None
        operation = record.full_name.split(".")[-3:-2]
        if operation in (["__getitem__"], ["__setitem__"]) and made.args[1:] and isinstance(made.args[1], list):
            made.args[1] = _index(made.args[1])
        return made

    def tensor(self, record: Record, name: str, stats: TensorStats) -> torch.Tensor:
        if stats.payload is not None:
            return self.saved(record, name, stats)
        if self._draw is not None:
            return self._draw(stats)
        generator = torch.Generator().manual_seed(self._seed ^ zlib.crc32(name.encode()))
        return drawn(stats, generator)

    def saved(self, record: Record, name: str, stats: TensorStats) -> torch.Tensor:
        try:
            if self._payload is not None and stats.payload is not None:
                return from_bytes(self._payload(stats.payload.hash), stats)
            file = self._contents.tensor(self._run, name, format="pt", step=record.step, rank=record.rank)
        except MsprobeError as error:
            raise NotReplayable(str(error)) from None
        return from_file(file, stats)

    def outputs(self, record: Record) -> Iterator[tuple[str, torch.Tensor | None]]:
        """The saved tensors of its output with their names; None: not saved."""
        for name, stats in record.tensors():
            if name.startswith(f"{record.full_name}.output"):
                yield name, None if stats.payload is None else self.saved(record, name, stats)


def _needs_grad(stats: TensorStats, tensor: torch.Tensor) -> bool:
    """MindSpore's tensors do not say."""
    return tensor.is_floating_point() if stats.type.startswith(MINDSPORE) else stats.requires_grad


def _index(items: list[Any]) -> tuple[Any, ...]:
    """What stood between the brackets, which a record writes as a list also where it was a tuple."""
    if not any(item is None or item is ... or isinstance(item, slice | torch.Tensor) for item in items):
        raise NotReplayable("its index was a tuple or a list, which take other elements, and the record does not tell")
    return tuple(items)


def _special(kind: str, value: Any) -> Any:
    """A value that dump.json writes with its type."""
    if kind in ("torch.dtype", "mindspore.dtype"):
        return dtype_of(str(value))
    if kind == "torch.device":
        return torch.device("cpu")
    if kind in ("torch.Size", "tuple", "list"):
        return torch.Size(value) if kind == "torch.Size" else value
    if kind == "slice":
        return slice(*value)
    if kind == "ellipsis":
        return ...
    if kind == "NoneType":
        return None
    if kind in ("int", "float", "bool", "str"):
        return value
    if kind == "complex" and isinstance(value, str):
        return complex(value)
    if kind == "torch.memory_format":
        if str(value).removeprefix("torch.") not in _MEMORY_FORMATS:
            raise NotReplayable(f"an argument is the memory format {value}, which torch does not have")
        return getattr(torch, str(value).removeprefix("torch."))
    raise NotReplayable(f"an argument is a {kind}, which a record does not hold")

"""Builds values of every kind a call can carry from descriptions that are plain JSON: [kind, ...]."""

import collections
import dataclasses

import numpy
import torch

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Record:
    x: object
    y: object


DTYPES = (
    "float64 float32 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64 complex128 float8_e4m3fn float8_e5m2"
).split()
SHAPES = ((), (1,), (5,), (2, 3), (3, 1, 4), (0, 3), (33,), (7, 9))
LAYOUTS = ("plain", "transposed", "strided", "expanded", "offset")
CONSTANTS = {
    "none": lambda: None,
    "ellipsis": lambda: ...,
    "complex": lambda: 1 + 2j,
    "bytes": lambda: b"\x00ab",
    "set": lambda: {1, 2},
    "object": object,
    "function": lambda: print,
    "class": lambda: Record,
    "dtype": lambda: torch.float32,
    "device": lambda: torch.device("cpu"),
    "layout": lambda: torch.strided,
    "format": lambda: torch.channels_last,
    "generator": torch.Generator,
    "module": lambda: torch.nn.Linear(1, 1),
    "meta": lambda: torch.empty(2, 3, device="meta"),
    "parameter": lambda: torch.nn.Parameter(torch.arange(3.0)),
    "buffer": lambda: torch.nn.Buffer(torch.arange(3.0)),
    "array of strings": lambda: numpy.array(["a"]),
    "numpy complex": lambda: numpy.complex64(1j),
    "numpy string": lambda: numpy.str_("q"),
}
ARRAYS = ("float32", "float64", "int64", "int32", "uint8")


def tensor(dtype, shape, layout, seed, special):
    torch_dtype = getattr(torch, dtype)
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 10
    if special and made.numel():
        made.view(-1)[seed % made.numel()] = float(special)
    if dtype.startswith(("int", "uint")):
        made = made.nan_to_num(0, 100, -100).round()
        made = made.abs() if dtype == "uint8" else made
    made = made.to(torch_dtype)
    if layout == "transposed" and made.dim() >= 2:
        return made.transpose(0, 1)
    if layout == "strided" and made.dim():
        return made[..., ::2]
    if layout == "expanded" and made.dim() and made.numel():
        return made[:1].expand(3, *made.shape[1:])
    if layout == "offset" and made.dim() and made.shape[0] > 1:
        return made[1:]
    return made


def build(description):
    kind, *rest = description
    if kind == "constant":
        return CONSTANTS[rest[0]]()
    if kind in ("value", "text"):
        return rest[0]
    if kind == "float":
        return float(rest[0])
    if kind == "slice":
        return slice(*rest)
    if kind == "size":
        return torch.Size(rest[0])
    if kind == "tensor":
        return tensor(*rest[:5]).requires_grad_(rest[5])
    if kind == "numpy":
        return getattr(numpy, rest[0])(rest[1])
    if kind == "array":
        return numpy.arange(rest[1]).astype(rest[0]) - (0 if rest[0] == "uint8" else 2)
    if kind == "dict":
        return {name: build(each) for name, each in rest[0]}
    items = [build(each) for each in rest[0]]
    if kind == "list":
        return items
    if kind == "tuple":
        return tuple(items)
    return (Pair if kind == "namedtuple" else Record)(*items)

"""The form of a call's value in dump.json, written from its documentation in plain Python and torch.

Statistics are float64 computations. `mode` is a summary_mode; `cuts` the slices of the configuration.
"""

import dataclasses
import math
import struct
import zlib

import numpy
import torch

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
WITH_MEAN = (torch.float32, torch.float16, torch.bfloat16)
STATISTICS = ("Max", "Min", "Mean", "Norm")
FORMATS = {torch.channels_last: "channels_last", torch.contiguous_format: "contiguous_format"}


@dataclasses.dataclass(frozen=True)
class Encoder:
    mode: str = "statistics"
    cuts: tuple = ()

    def value(self, value, key=None):
        """key: the keyword or dict key that the value stands under, None for a position."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, numpy.ndarray):
            return self.array(value)
        if isinstance(value, numpy.generic):
            known = isinstance(value, (numpy.bool_, numpy.integer, numpy.floating, numpy.str_))
            return {"type": type(value).__name__, "value": value.item()} if known else None
        if isinstance(value, torch.Size):
            return {"type": "torch.Size", "value": list(value)}
        if isinstance(value, torch.dtype):
            return {"type": "torch.dtype", "value": str(value)} if key in ("dtype", "output_dtype") else {}
        if isinstance(value, torch.device):
            text = f"{value.type}:{value.index}"
            return {"type": "torch.device", "value": text} if key == "device" else {}
        if isinstance(value, torch.memory_format):
            return {"type": "torch.memory_format", "format": FORMATS[value]}
        if isinstance(value, (bool, int, float, str)):
            return {"type": type(value).__name__, "value": value}
        if value is Ellipsis:
            return {"type": "ellipsis", "value": "..."}
        if isinstance(value, slice):
            return {"type": "slice", "value": [value.start, value.stop, value.step]}
        if hasattr(value, "_fields"):
            return {name: self.value(getattr(value, name), name) for name in value._fields}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {each.name: self.value(getattr(value, each.name), each.name) for each in dataclasses.fields(value)}
        if isinstance(value, dict):
            return {str(name): self.value(each, name) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(each) for each in value]
        return None

    def arguments(self, args, kwargs):
        return {
            "input_args": [self.value(each) for each in args],
            "input_kwargs": {name: self.value(each, name) for name, each in kwargs.items()},
        }

    def output(self, value):
        """A tuple's items are the list itself; a namedtuple and a torch.Size stand alone; the rest is in a list."""
        if isinstance(value, torch.Size) or hasattr(value, "_fields"):
            return self.value(value)
        return [self.value(each) for each in (value if isinstance(value, tuple) else (value,))]

    def tensor(self, tensor):
        seen = self.cut(tensor.detach())
        record = {"type": "torch.Tensor", "dtype": str(tensor.dtype), "shape": list(seen.shape)}
        requires_grad = tensor.requires_grad
        if self.mode == "xor":
            return {**record, "md5": self.xor(seen), "requires_grad": requires_grad}
        record.update(zip(STATISTICS, self.statistics(seen), strict=True))
        record["requires_grad"] = requires_grad
        if self.mode == "md5":
            record["md5"] = None if seen.is_meta else f"{zlib.crc32(raw(seen)):08x}"
        return record

    def cut(self, tensor):
        if tensor.is_meta:
            return tensor
        for rule in self.cuts:
            dim = rule.get("dim", 0)
            if dim < tensor.dim():
                tensor = tensor[(slice(None),) * dim + (slice(rule.get("begin", 0), rule.get("end")),)]
        return tensor

    def statistics(self, tensor):
        dtype = tensor.dtype
        if tensor.is_meta or not tensor.numel() or dtype in FLOAT8:
            return None, None, None, None
        if dtype == torch.bool:
            return bool(tensor.any()), bool(tensor.all()), None, None
        if dtype.is_complex:
            size = tensor.to(torch.complex128).abs()
            largest, least = tensor.abs().max().item(), tensor.abs().min().item()
            return largest, least, size.mean().item(), None
        if tensor.dim() == 0:
            return (tensor.item(),) * 4
        largest, least = tensor.max().item(), tensor.min().item()
        if dtype not in WITH_MEAN:
            return largest, least, None, None
        wide = tensor.to(torch.float64)
        return largest, least, wide.mean().item(), wide.pow(2).sum().sqrt().item()

    def array(self, array):
        record = {"type": "numpy.ndarray", "dtype": str(array.dtype), "shape": list(array.shape)}
        numbers = (None,) * 4
        if array.size and array.dtype.kind in "fiu":
            wide = array.astype(numpy.float64)
            numbers = (array.max().item(), array.min().item(), wide.mean().item(), math.sqrt((wide**2).sum()))
        return record | dict(zip(STATISTICS, numbers, strict=True))

    @staticmethod
    def xor(tensor):
        if tensor.is_meta or not tensor.numel() or tensor.dtype in FLOAT8:
            return None
        if tensor.dim() == 0 and tensor.dtype != torch.bool and not tensor.dtype.is_complex:
            return tensor.item() if tensor.is_floating_point() else f"0x{tensor.item() & (2**64 - 1):016x}"
        data = raw(tensor)
        data += bytes(-len(data) % 8)
        total = 0
        for (word,) in struct.iter_unpack("<Q", data):
            total ^= word
        return f"0x{total:016x}"


def raw(tensor):
    if not tensor.numel():
        return b""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    return flat.copy_(tensor.resolve_conj().resolve_neg().reshape(-1)).view(torch.uint8).numpy().tobytes()


def differences(expected, actual, path="", size=1):
    """Paths where two records differ. Mean and Norm may be off by float32 rounding; everything else must be equal."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if list(expected) != list(actual):
            return [f"{path}: keys {list(actual)} instead of {list(expected)}"]
        shape = expected.get("shape")
        size = math.prod(shape) if isinstance(shape, list) and all(isinstance(n, int) for n in shape) else 1
        found = []
        for name in expected:
            if name in ("Mean", "Norm") and shape != [] and near(name, expected, actual[name], size):
                continue
            found += differences(expected[name], actual[name], f"{path}.{name}", size)
        return found
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{path}: {len(actual)} items instead of {len(expected)}"]
        return [
            each
            for index, (a, b) in enumerate(zip(expected, actual, strict=True))
            for each in differences(a, b, f"{path}.{index}")
        ]
    if type(expected) is type(actual) and (expected == actual or (expected != expected and actual != actual)):
        return []
    return [f"{path}: {actual!r} instead of {expected!r}"]


def near(name, record, actual, size):
    expected, norm = record[name], record["Norm"]
    if not isinstance(expected, float) or not isinstance(actual, float):
        return False
    if not math.isfinite(expected):
        return expected == actual or (math.isnan(expected) and math.isnan(actual))
    if abs(expected) > 3.4028235e38:  # kept as float32
        return actual == math.copysign(math.inf, expected)
    slack = 1e-6 * norm / math.sqrt(size) if name == "Mean" and isinstance(norm, float) and math.isfinite(norm) else 0.0
    return abs(actual - expected) <= 1e-6 * abs(expected) + slack + 1e-45

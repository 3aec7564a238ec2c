"""The tensors of one call as a safetensors file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch

from msprobe_client.output.whole_file import whole_file

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Of its elements, in order."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def write_bundle(path: Path, contents: Mapping[str, tuple[torch.dtype, tuple[int, ...], bytes]]) -> None:
    """contents: dtype, shape and elements by name. A dtype that the format lacks is stored as bytes."""
    header: dict[str, object] = {}
    # Wide elements first, so that each tensor lies on a multiple of its element's size.
    order = sorted(contents, key=lambda name: (-contents[name][0].itemsize, name))
    at = 0
    for name in order:
        dtype, shape, content = contents[name]
        known = dtype in _NAMES
        header[name] = {
            "dtype": _NAMES.get(dtype, "U8"),
            "shape": list(shape) if known else [math.prod(shape) * dtype.itemsize],
            "data_offsets": [at, at + len(content)],
        }
        at += len(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(path) as scratch, scratch.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(contents[name][2])


def write_script(
    script: Path, bundle: Path, text: str, contents: Mapping[str, tuple[torch.dtype, tuple[int, ...], bytes]]
) -> None:
    """Both files, or neither."""
    write_bundle(bundle, contents)
    try:
        with whole_file(script) as scratch:
            scratch.write_text(text, encoding="ascii")
    except BaseException:
        bundle.unlink(missing_ok=True)
        raise

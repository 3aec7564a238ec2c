#!/usr/bin/env python3
"""Writes the first files of corpus/: small ones of each kind. What a fuzzer found is added by hand.

storage_value/tile is a zero byte and what `reference_store --tiles DIRECTORY` prints.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy
import torch
import xxhash
from msprobe_client.proto import ingest_pb2, record_pb2

CORPUS = Path(__file__).resolve().parent / "corpus"
DUMP = """{"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": null, "data": {
"Torch.add.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": 1.5,
"Min": -Infinity, "Mean": NaN, "Norm": null, "requires_grad": true, "md5": "0badcafe"}, {"type": "int", "value": 7},
{"type": "slice", "value": [null, 1, null]}], "input_kwargs": {"alpha": {"type": "float", "value": 0.5}},
"output": [null]},
"Module.a.Linear.forward.0": {"input_args": [], "input_kwargs": {}, "output": [{"type": "torch.Tensor",
"dtype": "torch.int64", "shape": [], "Max": 3, "Min": 3, "Mean": null, "Norm": null, "requires_grad": false}],
"parameters": {}}, "Module.a.Linear.parameters_grad.0": {"weight": [null]}}}"""
STACK = '{"0": [["Torch.add.0.forward"], ["File /a.py, line 3, in f, \\n y = x + 1", "File b.py, line 1, in <m>"]]}'
CONSTRUCT = '{"Torch.add.0.forward": "Module.a.Linear.forward.0", "Module.a.Linear.forward.0": null}'
DEBUG = '{"task": "tensor", "level": "debug", "data": {"x.0.debug": {"a": [1, 2.5, "b", true, null]}}}'


def write(target: str, name: str, content: bytes) -> None:
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def batch() -> bytes:
    slot = record_pb2.Node(tensor=record_pb2.Node.TensorSlot(type="torch.Tensor", dtype=2, device="cpu"))
    items = [slot, record_pb2.Node(slot=3), record_pb2.Node(slot=4), record_pb2.Node(slot=5), record_pb2.Node(slot=2)]
    entry = record_pb2.Node.Entry(key="input_args", value=record_pb2.Node(list=record_pb2.Node.List(items=items)))
    structure = record_pb2.Structure(
        name="Torch.add", kind=1, fields=record_pb2.Node(dict=record_pb2.Node.Dict(entries=[entry]))
    ).SerializeToString()
    identity = xxhash.xxh3_64_intdigest(structure)
    block = record_pb2.Block(
        step=1,
        structures=[identity],
        parents=["Module.a.A.forward.0"],
        shapes=[record_pb2.Shape(dims=[2, 3])],
        structure=[0],
        count=[0],
        ordinal_delta=[1],
        fragment_flags=[3],
        stack=[0],
        parent=[1],
        shape=[0],
        leaf_flags=[1 | 8 | 32],
        narrow=[1, 0, 0.5, 2, 0.25],
        zero_count=[1],
        non_finite=[record_pb2.NonFinite(leaf=0, nan_count=2, finite_max=1.0)],
        crc32=[7],
        payload=[record_pb2.PayloadRef(hash=bytes(16), size=24)],
        integers=[3],
        floats=[0.5],
        strings=["text"],
        booleans=[True],
    )
    marker = ingest_pb2.Marker(step_end=ingest_pb2.Marker.StepEnd(step=1))
    message = ingest_pb2.Batch(
        session=bytes(16),
        batch_sequence=1,
        definitions=[record_pb2.Definition(id=identity, structure=structure)],
        items=[ingest_pb2.Item(block=block), ingest_pb2.Item(marker=marker)],
    )
    write("storage_value", "block", b"\x01\x01" + block.SerializeToString())
    write("storage_value", "definition", b"\x02T" + structure)
    return ingest_pb2.AgentMessage(batch=message).SerializeToString()


def tensors() -> None:
    values = {
        "floats": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "halves": torch.ones(3, dtype=torch.bfloat16),
        "scalar": torch.tensor(True),
        "strided": torch.arange(12).reshape(3, 4).t()[1:],
        "parameter": torch.nn.Parameter(torch.zeros(2)),
    }
    for name, value in values.items():
        file = io.BytesIO()
        torch.save(value, file)
        write("pt_file", name, file.getvalue())
    arrays = {
        "floats": numpy.arange(6, dtype="<f4").reshape(2, 3),
        "fortran": numpy.asfortranarray(numpy.arange(6, dtype=">i8").reshape(2, 3)),
        "complex": numpy.ones(2, dtype="complex64"),
        "scalar": numpy.array(True),
        "objects": numpy.array([None], dtype=object),
    }
    for name, value in arrays.items():
        file = io.BytesIO()
        numpy.save(file, value, allow_pickle=True)
        write("npy_file", name, file.getvalue())


def tensor_files() -> None:
    """Of tests/fuzz/tensor_file.cc: the layout to make, and a file."""
    elements = numpy.arange(512, dtype="<f2").tobytes()
    write("tensor_file", "atb", b"\x00$Version=1.0\nformat=29\ndtype=1\ndims=2,1,16,16\n$End=1\n" + elements)
    shape = b"".join(bytes((8, size)) for size in (1, 2, 4, 4, 16))
    original = b"".join(bytes((8, size)) for size in (1, 20, 4, 4))
    output = b"\x08\x02\x10\x03\x1a" + bytes((len(shape),)) + shape + b"\x30\x80\x08\x3a\x08" + original
    header = b"\x1a" + bytes((len(output),)) + output
    write("tensor_file", "kernel_dump", b"\x01" + struct.pack("<Q", len(header)) + header + elements)
    names = b'{"w":{"dtype":"F16","shape":[16,32],"data_offsets":[0,1024]}}'
    write("tensor_file", "safetensors", b"\x03" + struct.pack("<Q", len(names)) + names + elements)
    file = io.BytesIO()
    numpy.save(file, numpy.arange(12, dtype="<f2").reshape(3, 4))
    write("tensor_file", "npy", b"\x03" + file.getvalue())
    file = io.BytesIO()
    torch.save({"a": [torch.arange(6).reshape(2, 3).t()]}, file)
    write("tensor_file", "pt", b"\x03" + file.getvalue())


def entry(key: bytes, content: bytes) -> bytes:
    covered = struct.pack("<QQ", len(content), len(key)) + key + content
    return struct.pack("<II", 0x4C50534D, zlib.crc32(covered)) + covered


def line(
    kind: int, content: bytes, *, last_entry: int = 0, number: int = 0, raw: tuple[int, int, int] | None = None
) -> bytes:
    """Of tests/fuzz/session_memory.cc. raw: offset, size, and how much of it counts."""
    place = raw or (0, 0, 0)
    return struct.pack("<BBHIQQQQ", kind, raw is not None, len(content), last_entry, number, *place) + content


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 8)


def session_memory() -> None:
    """A queue with a fragment of a tensor and a marker, definitions, and what a batch has announced."""
    marker = ingest_pb2.Marker(step_end=ingest_pb2.Marker.StepEnd(step=1)).SerializeToString()
    fields = record_pb2.Node(tensor=record_pb2.Node.TensorSlot(type="torch.Tensor", dtype=2, device="cpu"))
    structure = record_pb2.Structure(name="Torch.add", kind=1, fields=fields).SerializeToString()
    definition = padded(struct.pack("<IIQ", 1, 1, len(structure)) + structure)
    leaf = struct.pack(
        "<5d2q4Q4dQII8BQ", *[1.5] * 5, 1, 1, 0, 0, 0, 0, *[1.5] * 4, 7, 7, 2, *[1, 0, 0, 0, 1, 1, 1, 1], 0
    )
    payload = struct.pack("<QQQ", 1 << 17, 16, 1) + bytes(range(16))
    text = struct.pack("<Q", 3) + padded(b"abc")
    rest = leaf + payload + struct.pack("<2q", 2, 3) + text
    heading = struct.pack("<QQ18I", 88 + len(rest), 5, 0, 0, 1, 0, 1, 0, 3, 0, 0, 1, 1, 2, 0, 0, 0, 1, 1, 0)
    ending = struct.pack("<QQ18I", 88 + len(padded(marker)), 0, 1, len(marker), *[0] * 16) + padded(marker)
    queue = line(1, heading + rest + ending)
    write("session_memory", "queue", line(2, definition) + queue)
    wire = batch()
    write(
        "session_memory", "batch", line(3, wire, last_entry=1, number=1) + line(4, bytes(range(64)), number=1) + queue
    )
    write("session_memory", "place", line(2, definition) + line(1, b"", raw=(1 << 17, 4096, 64)))


def main() -> None:
    write("wire_batch", "batch", batch())
    write("storage_value", "key", b"\x03" + bytes(range(29)))
    get = b"\x07GET /api/runs?run=a%20b&x=+ HTTP/1.1\r\nHost: localhost:8080\r\nRange: bytes=0-,0-\r\n\r\n"
    post = b"\xffPOST / HTTP/1.1\r\nHost: [::ffff:127.0.0.1]\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    write("http_request", "get", get)
    write("http_request", "post", post)
    for number, host in enumerate(("127.0.0.1:80", "127.attacker.example", "[::1]:8080", "a\n\x1b\x9b\u202e")):
        write("http_request", f"host{number}", b"\x01" + host.encode())
    for which, text in enumerate((DUMP, STACK, CONSTRUCT, DEBUG)):
        write("dump_directory", ("dump", "stack", "construct", "debug")[which], bytes([which]) + text.encode())
    tensors()
    tensor_files()
    write("spool_segment", "two", entry(b"session", b"who") + entry(b"batch 1", bytes(40)))
    write("spool_segment", "torn", entry(b"session", b"who") + entry(b"batch 1", bytes(40))[:30])
    session_memory()
    print(f"{sum(1 for path in CORPUS.rglob('*') if path.is_file())} files in {CORPUS}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Generates msprobe_client/proto/*_pb2*.py and .pyi from proto/msprobe/v1/*.proto.

The package `msprobe` belongs to the agent, so the modules are flat inside msprobe_client.proto and import each other
relatively. The names inside the descriptors stay msprobe/v1/*.proto.

The checks that tie generated code to at least the generator's own version of protobuf and grpcio are taken out: the
client must install beside whatever versions a serving image pins. What remains uses only what these libraries have had
since the lower bounds in pyproject.toml.
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib import resources
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE / "msprobe_client" / "proto"
NAMES = (
    "record",
    "ingest",
    "query",
    "control",
    "analysis",
    "check",
    "report",
    "jobs",
    "monitor",
    "gradients",
    "checkpoints",
    "environment",
    "tensors",
    "communication",
)
SERVICES = tuple(name for name in NAMES if name not in ("record", "ingest", "check"))

_PROTOBUF_CHECK = re.compile(r"^_runtime_version\.ValidateProtobufRuntimeVersion\(.*?^\)\n", re.MULTILINE | re.DOTALL)
_PROTOBUF_CHECK_IMPORT = "from google.protobuf import runtime_version as _runtime_version\n"
_GRPC_CHECK = re.compile(r"^import warnings\n|^GRPC_GENERATED_VERSION = .*?(?=^class )", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^from msprobe\.v1 import ", re.MULTILINE)
_STRAY_IMPORT = re.compile(r"^\s*(from|import) msprobe\b", re.MULTILINE)


def proto_root() -> Path | None:
    """The directory that holds msprobe/v1: of the repository, or of an unpacked source distribution."""
    for candidate in (HERE.parent / "proto", HERE / "proto"):
        if (candidate / "msprobe" / "v1" / "query.proto").is_file():
            return candidate
    return None


def rewrite(text: str, file_name: str) -> str:
    text = _IMPORT.sub("from . import ", text)
    if file_name.endswith("_pb2.py"):
        text = _PROTOBUF_CHECK.sub("", text).replace(_PROTOBUF_CHECK_IMPORT, "")
        text = text.replace("'msprobe.v1.", "'msprobe_client.proto.")  # the classes' __module__
    elif file_name.endswith("_pb2_grpc.py"):
        text = _GRPC_CHECK.sub("", text)
    if _STRAY_IMPORT.search(text) or "RuntimeVersion" in text:
        raise SystemExit(f"generate_proto: {file_name} has a form this script does not know; look at its imports")
    return text


def generate() -> list[Path]:
    """Writes the modules that changed; returns all of them."""
    root = proto_root()
    if root is None:
        existing = sorted(TARGET.glob("*_pb2*.py*"))
        if existing:
            return existing
        raise SystemExit(f"generate_proto: no proto/msprobe/v1/query.proto beside {HERE} or in it")
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as scratch:
        common = ["protoc", f"-I{root}", f"-I{resources.files('grpc_tools') / '_proto'}"]
        plugins = [
            f"--plugin=protoc-gen-{name}={_plugin(f'protoc-gen-{name}', scratch)}" for name in ("mypy", "mypy_grpc")
        ]
        messages = [f"--python_out={scratch}", f"--mypy_out=quiet:{scratch}"]
        services = [f"--grpc_python_out={scratch}", f"--mypy_grpc_out=quiet:{scratch}"]
        for outputs, names in ((messages, NAMES), (services, SERVICES)):
            if protoc.main([*common, *plugins, *outputs, *(f"msprobe/v1/{name}.proto" for name in names)]) != 0:
                raise SystemExit(f"generate_proto: protoc failed on {root}/msprobe/v1")
        written = []
        for source in sorted((Path(scratch) / "msprobe" / "v1").iterdir()):
            target = TARGET / source.name
            text = rewrite(source.read_text(encoding="utf-8"), source.name)
            if not target.is_file() or target.read_text(encoding="utf-8") != text:
                target.write_text(text, encoding="utf-8")
            written.append(target)
    return written


def _plugin(name: str, scratch: str) -> Path:
    """A launcher of a mypy-protobuf plugin for this interpreter, whose scripts need not be in PATH."""
    function = {"protoc-gen-mypy": "main", "protoc-gen-mypy_grpc": "grpc"}[name]
    launcher = Path(scratch) / name
    launcher.write_text(
        f"#!/bin/sh\nexec {sys.executable!r} -c 'from mypy_protobuf.main import {function}; {function}()' \"$@\"\n"
    )
    launcher.chmod(0o755)
    return launcher


if __name__ == "__main__":
    for path in generate():
        print(path.relative_to(HERE))

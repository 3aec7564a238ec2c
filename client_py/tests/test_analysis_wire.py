"""The wire of analysis and the other services of clients grows by added fields only: every field of it, recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from msprobe_client.proto import (
    analysis_pb2,
    check_pb2,
    checkpoints_pb2,
    communication_pb2,
    environment_pb2,
    gradients_pb2,
    jobs_pb2,
    monitor_pb2,
    tensors_pb2,
)


def fields(prefix: str, message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
    name = f"{prefix}{message.name}"
    for field in message.field:
        kind = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        repeated = "repeated " if field.label == descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED else ""
        yield f"{name}.{field.name} = {field.number} {repeated}{kind} {field.type_name}".rstrip()
    for enum in message.enum_type:
        yield from values(f"{name}.", enum)
    for nested in message.nested_type:
        yield from fields(f"{name}.", nested)


def values(prefix: str, enum: descriptor_pb2.EnumDescriptorProto) -> Iterator[str]:
    yield from (f"{prefix}{enum.name}.{value.name} = {value.number}" for value in enum.value)


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("analysis", (analysis_pb2, check_pb2)),
        ("jobs", (jobs_pb2,)),
        ("monitor", (monitor_pb2,)),
        ("gradients", (gradients_pb2,)),
        ("checkpoints", (checkpoints_pb2,)),
        ("environment", (environment_pb2,)),
        ("tensors", (tensors_pb2,)),
        ("communication", (communication_pb2,)),
    ],
    ids=["analysis", "jobs", "monitor", "gradients", "checkpoints", "environment", "tensors", "communication"],
)
def test_nothing_of_the_wire_is_gone_or_changed(name: str, modules: tuple[Any, ...]) -> None:
    kept = Path(__file__).with_name(f"{name}_wire.txt")
    now: set[str] = set()
    for module in modules:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        now |= {line for message in file.message_type for line in fields("", message)}
        now |= {line for enum in file.enum_type for line in values("", enum)}
        now |= {
            f"{service.name}.{method.name}({method.input_type}) -> {method.output_type}"
            for service in file.service
            for method in service.method
        }
    recorded = set(kept.read_text(encoding="utf-8").splitlines())
    assert not recorded - now, "taken away or changed; old clients and servers would misread each other"
    assert not now - recorded, f"new: add these lines to {kept.name}"

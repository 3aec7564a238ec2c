"""Rules as people write them: YAML or JSON (docs/monitoring.md), and the table of rules that a run has."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from msprobe_client.errors import InvalidArgument
from msprobe_client.given_file import yaml_of
from msprobe_client.proto import monitor_pb2

if TYPE_CHECKING:
    import os

    from google.protobuf.descriptor import Descriptor, FieldDescriptor


def read_rules(path: str | os.PathLike[str]) -> monitor_pb2.RuleSet:
    """A file of rules. InvalidArgument names the rule, what it says, and what it could say."""
    from google.protobuf import json_format

    found = yaml_of(path)
    if not isinstance(found, dict) or set(found) != {"rules"} or not isinstance(found["rules"], list):
        raise InvalidArgument(f"{path} has no list of rules; it should begin with 'rules:'")
    for number, rule in enumerate(found["rules"], 1):
        name = rule.get("name") if isinstance(rule, dict) else None
        place = f"{path}: rule {name!r}" if isinstance(name, str) else f"{path}: rule {number}"
        if isinstance(rule, dict):  # a kind without parameters is written "not_finite:"
            rule.update({key: {} for key, value in rule.items() if value is None})
        _check_message(rule, monitor_pb2.Rule.DESCRIPTOR, place, "")
        kinds = [key for key in rule if _field(monitor_pb2.Rule.DESCRIPTOR, key).containing_oneof is not None]
        if len(kinds) > 1:
            raise InvalidArgument(f"{place} is both {kinds[0]} and {kinds[1]}; write two rules")
    try:
        return json_format.ParseDict(found, monitor_pb2.RuleSet())
    except json_format.ParseError as error:
        raise InvalidArgument(f"{path}: {' '.join(str(error).split())}") from None


def rules_text(rules: monitor_pb2.RuleSet) -> str:
    """The YAML that read_rules reads."""
    import yaml
    from google.protobuf import json_format

    found = json_format.MessageToDict(rules, preserving_proto_field_name=True)
    return str(yaml.safe_dump(found or {"rules": []}, sort_keys=False))


def rule_rows(rules: monitor_pb2.RuleSet) -> list[dict[str, str]]:
    """Name, kind, series and parameters of each; empty: the default of the kind."""
    rows = []
    for rule in rules.rules:
        kind = rule.WhichOneof("kind") or ""
        given = ((field.name, value) for field, value in getattr(rule, kind).ListFields()) if kind else ()
        parameters = ", ".join(f"{name}: {_shown(value)}" for name, value in given)
        rows.append({"name": rule.name, "kind": kind, "series": rule.series, "parameters": parameters})
    return rows


def _shown(value: Any) -> str:
    """As YAML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:g}"


def _check_message(value: Any, message: Descriptor, place: str, within: str) -> None:
    """within: "" or "exploding.": the fields on the way to this message. protobuf's own errors speak of messages."""
    if not isinstance(value, dict):
        said = f"has {within.rstrip('.')}:" if within else "is"
        raise InvalidArgument(f"{place} {said} {value!r}; it should be fields with values: {_names(message)}")
    for key, given in value.items():
        field = _field(message, key)
        if field is None:
            raise InvalidArgument(f"{place} has no field {within + str(key)!r}; there are {_names(message)}")
        if field.message_type is not None:
            _check_message(given, field.message_type, place, f"{within}{key}.")
        elif (wanted := _wanted(given, field)) is not None:
            raise InvalidArgument(f"{place} has {within}{key}: {given!r}; it should be {wanted}")


def _wanted(value: Any, field: FieldDescriptor) -> str | None:
    """What a value should be that the field does not take. Texts are taken for numbers: YAML reads 1e4 as one."""
    if field.cpp_type == field.CPPTYPE_STRING:
        return None if isinstance(value, str) else "a text"
    if field.cpp_type == field.CPPTYPE_BOOL:
        return None if isinstance(value, bool) else "true or false"
    number = math.nan
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if field.cpp_type == field.CPPTYPE_UINT32:
        return None if number.is_integer() and 0 <= number < 1 << 32 else "a whole number from 0 to 4294967295"
    return "a number" if math.isnan(number) else None


def _field(message: Descriptor, key: Any) -> Any:
    """By its name here or in JSON: z_score or zScore."""
    named = {each.name: each for each in message.fields} | {each.json_name: each for each in message.fields}
    return named.get(key)


def _names(message: Descriptor) -> str:
    return ", ".join(field.name for field in message.fields)


__all__ = ["read_rules", "rule_rows", "rules_text"]

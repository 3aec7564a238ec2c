"""Reads mapping files of mindstudio-probe, and tolerance policies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msprobe_client.errors import DataError, InvalidArgument
from msprobe_client.given_file import yaml_of
from msprobe_client.proto import analysis_pb2

PathLike = str | os.PathLike[str]

_PARTS = (("args", "inputs"), ("output", "outputs"), ("parameters", "parameters"), ("parameters_grad",) * 2)


@dataclass(frozen=True, slots=True)
class ToleranceRule:
    """One rule of a policy: for tensors of this name pattern and dtype. None: everything."""

    name: str | None = None
    dtype: str | None = None
    rtol: float | None = None
    atol: float | None = None

    def message(self) -> analysis_pb2.ToleranceSetting:
        return analysis_pb2.ToleranceSetting(
            name_glob=self.name or "", dtype=self.dtype or "", relative=self.rtol, absolute=self.atol
        )


def mapping(
    *,
    data: PathLike | None = None,
    cell: PathLike | bool | None = None,
    api: PathLike | bool | None = None,
    layer: PathLike | None = None,
) -> analysis_pb2.NameMapping:
    """The content of the files. cell, api: True is the option without a file. One of the four, or cell and api."""
    given = [name for name, value in (("data", data), ("cell", cell), ("api", api), ("layer", layer)) if value]
    if len(given) > 1 and given != ["cell", "api"]:
        raise InvalidArgument(f"{' and '.join(given)} mapping at once are not possible; only cell and api go together")
    made = analysis_pb2.NameMapping(cells=bool(cell), apis=bool(api))
    if data:
        made.rows.extend(_names(mapping_of(data), data))
    if cell and cell is not True:
        made.cell_names.extend(_names(mapping_of(cell), cell))
    if api and api is not True:
        made.api_names.extend(_apis(api))
    if layer:
        for class_name, names in mapping_of(layer).items():
            if not isinstance(names, dict):
                raise InvalidArgument(f"{os.fspath(layer)}: {class_name} is not a mapping of names to names")
            made.layers.add(class_name=str(class_name), names=_names(names, layer))
    return made


def renames(path: PathLike) -> list[tuple[str, str]]:
    """{text: new text}, for texts in names that are replaced one after another."""
    return [(name.target, name.golden) for name in _names(mapping_of(path), path)]


def layers(path: PathLike | None) -> analysis_pb2.NameMapping:
    """The layer mapping of a file, which must name something. None: modules correspond by their places alone."""
    made = analysis_pb2.NameMapping() if path is None else mapping(layer=path)
    made.file = "" if path is None else os.fspath(path)
    if path is not None and not any(layer.names for layer in made.layers):
        raise InvalidArgument(f"{os.fspath(path)}: it names no module; write {{class: {{target's path: golden path}}}}")
    if path is None:
        made.layers.add(class_name="TopLayer")
    return made


def tolerance_policy(path: PathLike) -> list[ToleranceRule]:
    """The rules of a policy file, YAML or JSON: {tolerances: [{name, dtype, rtol, atol}, ...]}, the last one wins."""
    where = os.fspath(path)
    rules = mapping_of(path).get("tolerances")
    if not isinstance(rules, list):
        raise InvalidArgument(f'{where}: it has no list "tolerances" of rules {{name, dtype, rtol, atol}}')
    return [_rule(rule, f"{where}: rule {number}") for number, rule in enumerate(rules, 1)]


def _rule(rule: object, where: str) -> ToleranceRule:
    if not isinstance(rule, dict):
        raise InvalidArgument(f"{where} is not a mapping with name, dtype, rtol, atol")
    for key, value in rule.items():
        if key not in ("name", "dtype", "rtol", "atol"):
            raise InvalidArgument(f"{where} has {key!r}; known are name, dtype, rtol, atol")
        if key in ("rtol", "atol") and not (
            isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        ):
            raise InvalidArgument(f"{where}: {key} {value!r} is not allowed: it must be a number of 0 or more")
        if key in ("name", "dtype") and not isinstance(value, str):
            raise InvalidArgument(f"{where}: {key} {value!r} is not allowed: it must be a text")
    if "rtol" not in rule and "atol" not in rule:
        raise InvalidArgument(f"{where} has neither rtol nor atol")
    return ToleranceRule(**rule)


def _document(path: PathLike) -> Any:
    try:
        return yaml_of(path)
    except OSError as error:
        raise DataError(f"{os.fspath(path)} cannot be read: {error.strerror}") from None


def mapping_of(path: PathLike) -> dict[Any, Any]:
    found = _document(path)
    if not isinstance(found, dict):
        raise InvalidArgument(f"{os.fspath(path)}: it is not a mapping of names to names")
    return found


def _names(found: dict[Any, Any], path: PathLike) -> Iterator[analysis_pb2.NameMapping.Name]:
    for target, golden in found.items():
        if not isinstance(golden, str | int):
            raise InvalidArgument(f"{os.fspath(path)}: the partner of {target} is {golden!r}; it must be a name")
        yield analysis_pb2.NameMapping.Name(target=str(target), golden=str(golden))


def _apis(path: PathLike) -> Iterator[analysis_pb2.NameMapping.Api]:
    found = _document(path)
    if not isinstance(found, list):
        raise InvalidArgument(f"{os.fspath(path)}: it is not a list of {{ms_api, pt_api, ms_args, pt_args, ...}}")
    for number, each in enumerate(found, 1):
        where = f"{os.fspath(path)}: entry {number}"
        if not isinstance(each, dict) or not each.get("ms_api") or not each.get("pt_api"):
            raise InvalidArgument(f"{where} has no ms_api and pt_api")
        made = analysis_pb2.NameMapping.Api(target=str(each["ms_api"]), golden=str(each["pt_api"]))
        for part, field in _PARTS:
            target, golden = each.get(f"ms_{part}") or [], each.get(f"pt_{part}") or []
            if len(target) != len(golden):
                raise InvalidArgument(f"{where}: ms_{part} and pt_{part} have {len(target)} and {len(golden)} items")
            for one, other in zip(target, golden, strict=True):
                getattr(made, field).add(target=str(one), golden=str(other))
        yield made

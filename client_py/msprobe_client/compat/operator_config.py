"""config_op.json of op_generate, and the file of one call that it takes from a dump.json."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_client.errors import DataError, InvalidArgument, NotFound
from msprobe_client.given_file import json_of
from msprobe_client.output.whole_file import whole_file

if TYPE_CHECKING:
    from msprobe_client.repro.scripted_call import Direction

_FIELDS = ("dump_json_path", "api_name", "extract_api_path", "propagation", "data_mode", "random_seed", "iter_times")
_CALL = re.compile(r"[A-Za-z]\w*\.[\w.]+\.\d+", re.ASCII)
_LONGEST_NAME = 300
_MOST_TIMES = 1000
_SEEDS = range(-(2**63), 2**64)
_DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
_DATA_NAME = "data_name"


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    extract: Path  # the file of the call
    dump: Path | None  # dump.json to take the call from; None: the file is there
    api_name: str  # "Functional.softmax.0"; "": whatever the file holds
    direction: Direction
    real: bool  # tensors as they were saved, not drawn
    seed: int
    times: int

    @classmethod
    def read(cls, path: str) -> OperatorConfig:
        reader = _Reader(path)
        dump = reader.text("dump_json_path")
        found = cls(
            extract=Path(reader.text("extract_api_path", required=True)),
            dump=Path(dump) if dump else None,
            api_name=reader.call(required=bool(dump)),
            direction="backward" if reader.choice("propagation", _DIRECTIONS) == "backward" else "forward",
            real=reader.choice("data_mode", ("random_data", "real_data")) == "real_data",
            seed=reader.number("random_seed", 1234, _SEEDS),
            times=reader.number("iter_times", 1, range(1, _MOST_TIMES + 1)),
        )
        if found.dump is not None and not found.dump.is_file():
            raise reader.wrong("dump_json_path", dump, "a file; name the dump.json of one rank")
        if found.dump is not None and found.extract.exists() and found.extract.samefile(found.dump):
            raise reader.wrong("extract_api_path", str(found.extract), "another file than dump_json_path")
        return found


class _Reader:
    def __init__(self, path: str) -> None:
        self._path = path
        found = _json_of(Path(path), f"-i {path}")
        if not isinstance(found, dict):
            raise InvalidArgument(f"-i {path} is not an object of fields such as {json.dumps(_FIELDS[2])}")
        self._fields: dict[str, Any] = found
        for name in self._fields:
            if name not in _FIELDS:
                near = difflib.get_close_matches(name, _FIELDS, 1) or [", ".join(_FIELDS)]
                raise InvalidArgument(f"-i {path}: {json.dumps(name)} is no field; write {near[0]}")

    def wrong(self, field: str, value: Any, right: str) -> InvalidArgument:
        return InvalidArgument(f"-i {self._path}: {field} is {json.dumps(value)}, not {right}")

    def text(self, field: str, *, required: bool = False) -> str:
        value = self._fields.get(field) or ""
        if not isinstance(value, str) or "\0" in value or (required and not value):
            raise self.wrong(field, self._fields.get(field), "the path of a file")
        return value

    def call(self, *, required: bool) -> str:
        value = self._fields.get("api_name") or ""
        if not value and not required:
            return ""
        if not isinstance(value, str) or len(value) > _LONGEST_NAME or not _CALL.fullmatch(value):
            right = f"a call such as Functional.softmax.0, of at most {_LONGEST_NAME} characters"
            raise self.wrong("api_name", self._fields.get("api_name"), right)
        return value

    def choice(self, field: str, allowed: tuple[str, ...]) -> str:
        """The first is the default."""
        value = self._fields.get(field) or allowed[0]
        if value not in allowed:
            raise self.wrong(field, value, f"one of {', '.join(allowed)}")
        return str(value)

    def number(self, field: str, default: int, allowed: range) -> int:
        value = self._fields.get(field)
        if value is None:
            return default
        if type(value) is not int or value not in allowed:
            raise self.wrong(field, value, f"a whole number from {allowed[0]} to {allowed[-1]}")
        return value


def extract(config: OperatorConfig) -> dict[str, dict[str, Any]]:
    """The records of the call, forward first; where a dump.json is named they are first taken from it."""
    if config.dump is not None:
        _take(config, config.dump)
    records = _json_of(config.extract, f"extract_api_path {config.extract}")
    if not isinstance(records, dict) or not all(isinstance(record, dict) for record in records.values()):
        raise DataError(f"extract_api_path {config.extract} is not the file of a call: {{name: {{input_args, ...}}}}")
    for name in list(records)[:1]:
        base = name.removesuffix(".forward")
        if not set(records) <= {f"{base}.{direction}" for direction in _DIRECTIONS}:
            raise DataError(f"extract_api_path {config.extract} holds {', '.join(records)}, not one call")
        if name != base and config.api_name in ("", base):
            return records
    wanted = f"{config.api_name or 'Functional.softmax.0'}.forward"
    raise DataError(f"extract_api_path {config.extract} begins with {next(iter(records), 'nothing')}, not {wanted}")


def _take(config: OperatorConfig, dump: Path) -> None:
    document = _json_of(dump, f"dump_json_path {dump}")
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        raise DataError(f'dump_json_path {dump} is not a dump.json: it has no object "data"')
    names = [name for name in data if name in {f"{config.api_name}.{direction}" for direction in _DIRECTIONS}]
    if not names:
        calls = list(dict.fromkeys(name.rpartition(".")[0] for name in data if name.endswith(".forward")))
        near = difflib.get_close_matches(config.api_name, calls, 3, 0.5)
        raise NotFound(f"{dump} has no call {config.api_name}" + (f"; near are {', '.join(near)}" if near else ""))
    folder = document.get("dump_data_dir")
    for name in names:
        for tensor in tensors_of(data[name]) if folder else ():
            if isinstance(tensor.get(_DATA_NAME), str):
                tensor[_DATA_NAME] = _path_of(tensor[_DATA_NAME], str(folder), dump)
    with whole_file(config.extract) as scratch, scratch.open("w") as file:
        json.dump({name: data[name] for name in names}, file, indent=4)


def _path_of(name: str, folder: str, dump: Path) -> str:
    """In the directory that dump.json names; or beside dump.json, where the dump has moved."""
    recorded = os.path.join(folder, name)  # noqa: PTH118 - which leaves the directory as it is written
    moved = dump.resolve().parent / "dump_tensor_data" / name
    return str(moved) if not Path(recorded).exists() and moved.exists() else recorded


def tensors_of(value: Any) -> Iterator[dict[str, Any]]:
    """The tensors of a record, as objects of its JSON."""
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield value
    elif isinstance(value, list | dict):
        for item in value if isinstance(value, list) else value.values():
            yield from tensors_of(item)


def _json_of(path: Path, shown: str) -> Any:
    try:
        return json_of(path)
    except FileNotFoundError:
        raise InvalidArgument(f"{shown} does not exist") from None
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace(str(path), shown, 1)) from None

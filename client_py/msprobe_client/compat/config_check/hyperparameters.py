"""Hyperparameters of launch scripts and YAML files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msprobe_client.errors import InvalidArgument
from msprobe_client.given_file import text_of, yaml_of
from msprobe_client.shown_values import shown_option

_LAUNCH = re.compile(r"(?:msrun|torchrun|python\d? -m torch\.distributed\.launch)\s[^|]*")
_BLOCK = re.compile(r'\b(\w+_ARGS)="([^"]*)"')
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_OPTION = re.compile(r"--([\w-]+)(?:=([^\s\\]+)|[^\S\n]+(?!--)([^\s\\]+))?")
# Blocks within blocks, at most.
_DEPTH = 8


def hyperparameters_of(files: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Of launch scripts (.sh) and YAML files, and what to say about those that gave none.

    A value that two files give differently is {"description": "duplicate_value", "values": [...]}.
    """
    found: dict[str, Any] = {}
    notes: list[str] = []
    for name in files:
        path = Path(name)
        read = _READERS.get(path.suffix)
        if read is None:
            raise InvalidArgument(f"{name} is no launch script; it has to end with {' or '.join(_READERS)}")
        try:
            given = read(path)
        except (OSError, InvalidArgument) as error:
            why = error.strerror if isinstance(error, OSError) else str(error).replace(name, "it", 1)
            notes.append(f"{name} was passed over: {why}")
            continue
        if not given:
            notes.append(
                f"{name} has no hyperparameters: no torchrun, msrun or torch.distributed.launch with --options"
            )
        _merge(found, {key: shown_option(key, value) for key, value in given.items()})
    return found, notes


def _merge(found: dict[str, Any], given: dict[str, Any]) -> None:
    for key, value in given.items():
        if key not in found or found[key] == value:
            found[key] = value
        elif isinstance(found[key], dict):
            found[key]["values"].append(value)
        else:
            found[key] = {"description": "duplicate_value", "values": [found[key], value]}


def _of_script(path: Path) -> dict[str, Any]:
    """--options of the command that launches the processes: "--lr 1e-4" and "--lr=1e-4" give a text, a flag True."""
    lines = (line.split("#")[0].rstrip() for line in text_of(path, "replace").splitlines())
    script = "\n".join(line for line in lines if line)
    launch = _LAUNCH.search(script)
    if launch is None:
        return {}
    blocks = {name: content.replace("\n", " ") for name, content in _BLOCK.findall(script)}
    command = launch.group()
    for _ in range(_DEPTH):
        unfolded = _VARIABLE.sub(lambda variable: blocks.get(variable[1], variable[0]), command)
        if unfolded == command:
            break
        command = unfolded
    return {
        name: _value(script, after_equals or after_space)
        for name, after_equals, after_space in _OPTION.findall(command)
    }


def _value(script: str, word: str) -> Any:
    variable = _VARIABLE.match(word)
    if variable is not None:
        assigned = re.findall(rf"(?:^|[\s;]){re.escape(variable[1])}=[^\S\n]*(.+)", script)
        return assigned[-1] if assigned else word
    return word or True


def _of_yaml(path: Path) -> dict[str, Any]:
    """Scalars and lists of scalars, by their path with points."""
    return dict(_leaves(yaml_of(path), ""))


def _leaves(node: Any, path: str) -> Iterable[tuple[str, Any]]:
    scalar = (int, float, str, bool)
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list) and not all(isinstance(item, (*scalar, list)) for item in node):
        for index, value in enumerate(node):
            yield from _leaves(value, f"{path}.{index}" if path else str(index))
    elif isinstance(node, (*scalar, list)):
        yield path, node


_READERS: dict[str, Callable[[Path], dict[str, Any]]] = {".sh": _of_script, ".yaml": _of_yaml}

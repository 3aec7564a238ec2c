"""token2category: of which kind of text each token of a model's vocabulary is."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe._common.errors import MsprobeError


class Vocabularies:
    """The models of mtype_config.json (their `eos`), and files {model}_{size of the vocabulary}.json beside.

    A file is read once, as long as it does not change.
    """

    def __init__(self, models: Path, directory: Path) -> None:
        self._models = models
        self._directory = directory

    def kinds(self, model: Any, last_token: Any) -> dict[int, str] | None:
        """By token. None: the model is not known, has no file, or the reply does not end by one of its `eos`."""
        known = _read(self._models) if model is not None else {}
        name = _known_as(model, known)
        if name is None or not isinstance(known[name], Mapping):
            return None
        eos = known[name].get("eos")
        if last_token not in (eos if isinstance(eos, list) else [eos]):
            return None
        for path in sorted(self._directory.glob("*.json")):
            match = re.fullmatch(r"([^_]+)_(\d+)", path.stem)
            if match is not None and match[1] == name:
                return _kinds(path, path.stat().st_mtime_ns, int(match[2]))
        return None


def _known_as(model: Any, known: Mapping[str, Any]) -> str | None:
    """The first known name that holds the model's or is held by it: case, `-`, `_`, `.` and spaces do not count."""
    name = model.get("model_name") if isinstance(model, Mapping) else model
    plain = _plain(name) if isinstance(name, str) else ""
    if not plain:
        return None
    return next((each for each in known if _plain(each) in plain or plain in _plain(each)), None)


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]", "", name.lower())


def _read(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise MsprobeError(f"{path} cannot be read: {error.strerror}") from None


@functools.lru_cache(maxsize=8)
def _parsed(path: Path, _changed: int) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MsprobeError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise MsprobeError(f"{path} holds a {type(content).__name__}; it should hold an object")
    return content


@functools.lru_cache(maxsize=8)
def _kinds(path: Path, changed: int, size: int) -> dict[int, str]:
    kinds = {}
    for token, kind in _parsed(path, changed).items():
        if not token.isdecimal() or not isinstance(kind, str):
            raise MsprobeError(f"{path}: token {token!r} is of kind {kind!r}; it should be a number and a text")
        if int(token) <= size:
            kinds[int(token)] = kind
    return kinds


__all__ = ["Vocabularies"]

"""What another run has of a module's call: a dump directory, or a run in a store."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from msprobe._common.earlier_dump import rank_directory
from msprobe._common.errors import MsprobeError
from msprobe.pytorch.graft.chosen import path_of

RUN_PREFIX = "run:"
INPUTS = ("input_args", "input_kwargs")
OUTPUTS = ("output",)
_WORDS = {"input_args": "input", "input_kwargs": "kwargs"}  # in the names of tensors


class Missing(Exception):
    """The golden does not have it; the text says what."""


class Golden(Protocol):
    """Tensors of calls of one step and rank. Threads: any."""

    def begin(self, step: int, rank: int | None) -> None:
        """The step that begins. MsprobeError: the golden does not have it."""

    def tensors(self, name: str, fields: Sequence[str]) -> list[torch.Tensor]:
        """Those of these fields of a record, in depth-first order, on the CPU. Missing: one is not there."""


def golden_of(source: str | os.PathLike[str], step: int | None, server: str) -> Golden:
    """source: a dump directory, or run:NAME. step: of the golden, whatever the program's; None: the same."""
    text = os.fspath(source)
    if text.startswith(RUN_PREFIX):
        return _Stored(text.removeprefix(RUN_PREFIX), step, server)
    return _Dumped(Path(text), step)


class _Dumped:
    def __init__(self, path: Path, step: int | None) -> None:
        if not path.is_dir():
            raise MsprobeError(
                f"source is {str(path)!r}, which is no directory; give the dump_path of a run of task tensor, "
                f"{RUN_PREFIX}NAME of a run in a store, 'float64' or 'float32'"
            )
        self._path, self._step = path, step
        self._directory = path
        self._records: dict[str, Any] = {}

    def begin(self, step: int, rank: int | None) -> None:
        step = step if self._step is None else self._step
        directory = rank_directory(self._path, step, rank)
        if directory is None:
            place = f"step{step}" if rank is None else f"step{step}/rank{rank}"
            raise MsprobeError(f"{self._path} has no {place}; capture it there with task tensor")
        if directory == self._directory:
            return
        try:
            records = json.loads((directory / "dump.json").read_text(encoding="utf-8"))["data"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MsprobeError(f"{directory / 'dump.json'} cannot be read: {error}") from None
        self._directory, self._records = directory, records

    def tensors(self, name: str, fields: Sequence[str]) -> list[torch.Tensor]:
        record = self._records.get(name)
        if not isinstance(record, dict):
            raise _no_record(str(self._directory), name, self._records)
        return [self._loaded(name, leaf) for field in fields for leaf in _leaves(record.get(field))]

    def _loaded(self, name: str, leaf: dict[str, Any]) -> torch.Tensor:
        file = leaf.get("data_name")
        if not isinstance(file, str) or "/" in file:
            raise Missing(f"{self._directory} has no content of {name}; capture it with task tensor")
        path = self._directory / "dump_tensor_data" / file
        try:
            return _tensor(torch.load(path, map_location="cpu", weights_only=True))
        except Exception as error:  # unpickling raises many kinds
            raise Missing(f"{path} cannot be loaded: {error}") from None


class _Stored:
    def __init__(self, run: str, step: int | None, server: str) -> None:
        try:
            from msprobe_client.client import Client
            from msprobe_client.errors import MsprobeError as ClientError
        except ImportError:
            raise MsprobeError("a run in a store needs msprobe-client: pip install msprobe-client") from None
        self._error = ClientError
        try:
            self._client = Client(server or None)
        except ClientError as error:
            raise MsprobeError(f"source {RUN_PREFIX}{run}: {error}") from None
        self._run, self._step = run, step
        self._begun: tuple[int, int | None] | None = None
        self._records: dict[str, Any] = {}

    def begin(self, step: int, rank: int | None) -> None:
        step = step if self._step is None else self._step
        if self._begun == (step, rank):
            return
        try:
            there = [each.rank for each in self._client.steps(self._run) if each.step == step]
            ranks = [each for each in there if (each.kind, each.number) == ("rank", rank)] or there
            if len(ranks) != 1:
                place = f"step {step}" if rank is None else f"step {step} rank{rank}"
                raise MsprobeError(f"source {RUN_PREFIX}{self._run}: the run has no {place}, or several ranks of it")
            found = self._client.records(self._run, step=step, rank=ranks[0], name="Module.*")
            self._records = {record.full_name: record for record in found if record.direction == "forward"}
        except self._error as error:
            raise MsprobeError(f"source {RUN_PREFIX}{self._run}: {error}") from None
        if not self._records:
            raise MsprobeError(f"source {RUN_PREFIX}{self._run}: step {step} has no module")
        self._begun = step, rank

    def tensors(self, name: str, fields: Sequence[str]) -> list[torch.Tensor]:
        record = self._records.get(name)
        if record is None:
            raise _no_record(f"run {self._run}", name, self._records)
        places = tuple(f"{name}.{_WORDS.get(field, field)}." for field in fields)
        found = []
        for tensor, stats in record.tensors():
            if not tensor.startswith(places):
                continue
            if stats.payload is None:
                raise Missing(f"run {self._run} has no content of {tensor}; capture it with task tensor")
            try:
                file = self._client.tensor(self._run, tensor, format="pt", step=record.step, rank=record.rank)
            except self._error as error:
                raise Missing(str(error)) from None
            found.append(_tensor(torch.load(io.BytesIO(file), map_location="cpu", weights_only=True)))
        return found


def _no_record(where: str, name: str, records: Iterable[str]) -> Missing:
    module, _, call = name.partition(".forward.")
    there = (each for each in records if each.endswith(f".forward.{call}"))
    other = next((each for each in there if path_of(each.partition(".forward.")[0]) == path_of(module)), None)
    if other is None:
        return Missing(f"{where} has no {name}")
    return Missing(f"{where} has {other} there, a module of another class; name the module around it instead")


def _tensor(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise Missing(f"a file holds a {type(value).__name__}, not a tensor")
    return value.detach()


def _leaves(value: Any) -> Iterator[dict[str, Any]]:
    """Tensors of a field of dump.json."""
    if isinstance(value, dict) and str(value.get("type", "")).startswith("torch.") and "dtype" in value:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


__all__ = ["INPUTS", "OUTPUTS", "RUN_PREFIX", "Golden", "Missing", "golden_of"]

"""``from msprobe.core import SingleSave``, as in mindstudio-probe: tensors into files, under names of one's own."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError


class SingleSave:
    """The one saver of a process: later constructions return the first. Threads: one.

        SingleSave("dump")
        SingleSave.save({"loss": loss, "states": [first, second]})
        SingleSave.step()

    Writes dump_path/data/{name}/step{S}/rank{R}[/micro_step{M}]/{name}[.{member}].npy, float32 for PyTorch, and beside
    them {name}.json with max, min, mean, norm and shape of each. SingleComparator compares two such directories. A file
    that cannot be written leaves a line in the log.
    """

    _instance: SingleSave | None = None
    _dump_path: Path
    _framework: _PyTorch | _MindSpore
    _rank: int
    _step: int
    _calls: Counter[str]

    def __new__(cls, dump_path: str, fmk: str = "pytorch") -> SingleSave:
        """fmk: "pytorch" or "mindspore". The rank is torch.distributed's now, 0 without. Raises MsprobeError."""
        if cls._instance is None:
            if fmk not in _FRAMEWORKS:
                raise MsprobeError(f"SingleSave: fmk is {fmk!r}; it is one of {', '.join(_FRAMEWORKS)}")
            found = super().__new__(cls)
            found._dump_path = Path(dump_path)
            found._framework = _FRAMEWORKS[fmk]()
            found._rank = found._framework.rank()
            found._step = 0
            found._calls = Counter()
            try:
                found._dump_path.mkdir(mode=0o750, parents=True, exist_ok=True)
            except OSError as error:
                raise MsprobeError(f"SingleSave: dump_path {dump_path} cannot be made: {error.strerror}") from None
            cls._instance = found
        return cls._instance

    @classmethod
    def save_config(cls, data: Any) -> None:
        """Writes dump_path/configurations.json."""
        with _failures_logged():
            _write_json(cls._the_one()._dump_path / "configurations.json", data)

    @classmethod
    def save(cls, data: Mapping[str, Any]) -> None:
        """Saves each value under its name: a tensor, or a list, tuple or dict of tensors. The calls of a step with one
        name are its micro_step 0, 1, ... What is no tensor is left out, with a line in the log.
        """
        one = cls._the_one()
        for name, value in _named(data):
            cls.save_ex({name: value}, micro_batch=one._calls[name])
            one._calls[name] += 1

    @classmethod
    def save_ex(cls, data: Mapping[str, Any], micro_batch: int | None = None) -> None:
        """As save, with the number of the micro step, or None for a directory without."""
        one = cls._the_one()
        for name, value in _named(data):
            members = one._members(name, value)
            if members is None:
                log.warning(
                    f"SingleSave: {name!r} is a {type(value).__name__}; it should be a tensor, or a list, tuple or "
                    "dict of tensors. It is not saved."
                )
                continue
            directory = one._dump_path / "data" / name / f"step{one._step}" / f"rank{one._rank}"
            if micro_batch is not None:
                directory /= f"micro_step{micro_batch}"
            with _failures_logged():
                one._write(directory, name, value, members)

    @classmethod
    def step(cls) -> None:
        """Begins the next step."""
        one = cls._the_one()
        one._step += 1
        one._calls.clear()

    @classmethod
    def _the_one(cls) -> SingleSave:
        if cls._instance is None:
            raise MsprobeError("SingleSave: nothing says where to save; call SingleSave(dump_path) first")
        return cls._instance

    def _write(self, directory: Path, name: str, value: Any, members: Mapping[str, Any]) -> None:
        import numpy

        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        for file, tensor in members.items():
            numpy.save(directory / f"{file}.npy", self._framework.array(tensor))
        numbers = [self._framework.numbers(tensor) for tensor in members.values()]
        if isinstance(value, Mapping):
            found: Any = dict(zip(value, numbers))
        else:
            found = numbers if isinstance(value, (list, tuple)) else numbers[0]
        _write_json(directory / f"{name}.json", {"data": found})

    def _members(self, name: str, value: Any) -> dict[str, Any] | None:
        """Names of files without suffix, and their tensors. None: something else is among them."""
        if isinstance(value, Mapping):
            members = {f"{name}.{key}": each for key, each in value.items()}
        elif isinstance(value, (list, tuple)):
            members = {f"{name}.{index}": each for index, each in enumerate(value)}
        else:
            members = {name: value}
        fit = all(self._framework.is_tensor(each) and _is_file_name(file) for file, each in members.items())
        return members if fit else None


class _PyTorch:
    """Numbers as torch has them, of float32."""

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def rank(self) -> int:
        there = self._torch.distributed.is_available() and self._torch.distributed.is_initialized()
        return self._torch.distributed.get_rank() if there else 0

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor)

    def array(self, tensor: Any) -> Any:
        return tensor.detach().cpu().float().numpy()

    def numbers(self, tensor: Any) -> dict[str, Any]:
        return _numbers(tensor.detach().float(), tensor.shape)


class _MindSpore:
    def __init__(self) -> None:
        import mindspore

        self._mindspore = mindspore

    def rank(self) -> int:
        communication = self._mindspore.communication
        return communication.get_rank() if communication.GlobalComm.INITED else 0

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._mindspore.Tensor)

    def array(self, tensor: Any) -> Any:
        return (tensor.float() if tensor.dtype == self._mindspore.bfloat16 else tensor).asnumpy()

    def numbers(self, tensor: Any) -> dict[str, Any]:
        return _numbers(tensor.float(), tensor.shape)


_FRAMEWORKS: dict[str, Callable[[], _PyTorch | _MindSpore]] = {"pytorch": _PyTorch, "mindspore": _MindSpore}


def _numbers(tensor: Any, shape: Any) -> dict[str, Any]:
    """None in place of numbers that a tensor without elements does not have."""
    empty = 0 in tuple(shape)
    found: dict[str, Any] = {
        name: None if empty else float(getattr(tensor, name)()) for name in ("max", "min", "mean", "norm")
    }
    return found | {"shape": list(shape)}


def _named(data: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(data, Mapping):
        log.warning(f"SingleSave: {type(data).__name__} cannot be saved; give a dict of names and tensors")
        return
    for name, value in data.items():
        if isinstance(name, str) and _is_file_name(name):
            yield name, value
        else:
            log.warning(f"SingleSave: {name!r} cannot be the name of a directory; its value is not saved")


def _is_file_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and len(os.fsencode(name)) <= 240


@contextmanager
def _failures_logged() -> Iterator[None]:
    """A full disk ends no training."""
    try:
        yield
    except OSError as error:
        log.error(f"SingleSave: {error.filename or 'a file'} was not written: {error.strerror or error}")


def _write_json(path: Path, data: Any) -> None:
    try:
        path.write_text(json.dumps(data, indent=4), encoding="utf-8")
    except TypeError as error:
        raise MsprobeError(f"SingleSave: {path.name} cannot be written: {error}; give what JSON has") from None


__all__ = ["SingleSave"]

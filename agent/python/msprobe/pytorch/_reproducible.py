"""seed_all and random_save: the same random numbers in every run, and who asks for random numbers."""

from __future__ import annotations

import csv
import functools
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from msprobe._common import arguments, log
from msprobe._common.errors import MsprobeError

_LARGEST_SEED = 2**32 - 1
_TORCH = "bernoulli multinomial normal poisson rand rand_like randint randint_like randn randn_like randperm"
_TENSOR = "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_ random_ uniform_"
# What they have beside random numbers.
_NO_NUMBERS = {"seed", "getstate", "setstate", "get_state", "set_state", "default_rng"}


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> None:
    """Makes runs repeatable.

    seed: for random, PYTHONHASHSEED, numpy and torch with its devices; an int from 0 to 2**32 - 1.
    mode: torch.use_deterministic_algorithms(mode).
    rm_dropout: functional dropout, dropout2d and dropout3d drop nothing from now on.
    is_enhanced: every random call begins and ends with the state that is set here, so each gives what the first would.
    """
    if not arguments.is_integer(seed) or not 0 <= seed <= _LARGEST_SEED:
        raise MsprobeError(f"seed is {seed!r}; it should be an integer from 0 to {_LARGEST_SEED}")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout), ("is_enhanced", is_enhanced)):
        arguments.boolean(value, name)
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    if (numpy := _numpy()) is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode)
    _seed_devices(seed)
    if rm_dropout:
        _remove_dropout()
    if is_enhanced:
        _RandomCalls.the().fix_state()


def random_save(output_path: str = "./output") -> None:
    """Writes each call that asks python, numpy or torch for random numbers, with its stack, as a line of a CSV file.

    The file is ``random_{rankN|procPID}_{time}.csv`` in the directory output_path, which is made. A second call
    changes nothing.
    """
    if not isinstance(output_path, (str, os.PathLike)):
        raise MsprobeError(f"output_path is {output_path!r}; it should be a string, the path of a directory")
    _RandomCalls.the().save_to(Path(output_path))


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _device(name: str) -> Any:
    device = getattr(torch, name, None)
    try:
        return device if device is not None and device.is_available() else None
    except Exception:  # a backend without its driver
        return None


def _seed_devices(seed: int) -> None:
    if (npu := _device("npu")) is not None:
        npu.manual_seed_all(seed)
        os.environ.update(
            HCCL_DETERMINISTIC="True", LCCL_DETERMINISTIC="1", CLOSE_MATMUL_K_SHIFT="1", ATB_LLM_LCOC_ENABLE="0"
        )
    if (cuda := _device("cuda")) is not None:
        cuda.manual_seed_all(seed)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def _remove_dropout() -> None:
    functional: Any = torch.nn.functional

    def without(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
            if not 0.0 <= p <= 1.0:
                raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
            return original(input, 0.0, training, inplace)

        dropout.drops_nothing = True  # type: ignore[attr-defined]
        return dropout

    for name in ("dropout", "dropout2d", "dropout3d"):
        if not hasattr(getattr(functional, name), "drops_nothing"):
            setattr(functional, name, without(getattr(functional, name)))


class _RandomCalls:
    """Wrappers around the random functions, put in once, that fix the state, tell who called, or both."""

    _instance: _RandomCalls | None = None

    @classmethod
    def the(cls) -> _RandomCalls:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def __init__(self) -> None:
        self._state: dict[str, Any] | None = None
        self._directory: Path | None = None
        self._path: Path | None = None
        self._has_rank = False
        self._counts: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._inside = threading.local()
        self._patched = False

    def fix_state(self) -> None:
        if self._state is None:
            self._state = random_state()
            log.info("The random state fixation function is enabled.")
            self._patch()

    def save_to(self, directory: Path) -> None:
        if self._path is not None:
            return
        rank = _rank()
        label = f"proc{os.getpid()}" if rank is None else f"rank{rank}"
        path = directory / f"random_{label}_{time.strftime('%Y%m%d%H%M%S')}.csv"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="", encoding="utf-8-sig") as stream:
                csv.writer(stream).writerow(["api_name", "stack"])
        except OSError as error:
            raise MsprobeError(
                f"output_path {os.fspath(directory)!r} cannot be written: {error}; give a directory that can be"
            ) from None
        self._path, self._has_rank = path, rank is not None
        log.info(f"The random info will be saved in {path}.")
        self._patch()

    def _patch(self) -> None:
        if self._patched:
            return
        self._patched = True
        libraries: list[tuple[str, Any, list[str]]] = [("python_random", random, _public(random))]
        if (numpy := _numpy()) is not None:
            libraries.append(("numpy_random", numpy.random, _public(numpy.random)))
        libraries += [("torch_random", torch, _TORCH.split()), ("tensor_random", torch.Tensor, _TENSOR.split())]
        for library, owner, names in libraries:
            for name in names:
                if (original := getattr(owner, name, None)) is not None:
                    setattr(owner, name, self._wrapper(f"{library}.{name}", original))

    def _wrapper(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._state is not None:
                restore_random_state(self._state)
            try:
                return original(*args, **kwargs)
            finally:
                if self._state is not None:
                    restore_random_state(self._state)
                if self._path is not None:
                    self._write(name)

        return wrapper

    def _write(self, name: str) -> None:
        if getattr(self._inside, "writing", False):
            return
        self._inside.writing = True
        try:
            with self._lock:
                self._take_rank()
                count = self._counts[name]
                self._counts[name] += 1
                assert self._path is not None
                with self._path.open("a", newline="", encoding="utf-8") as stream:
                    csv.writer(stream).writerow([f"{name}.{count}", _stack(sys._getframe(2))])
        except Exception as error:  # into the user's call nothing of ours may go
            log.error(f"random_save: a call of {name} is missing: {error}")
        finally:
            self._inside.writing = False

    def _take_rank(self) -> None:
        """The file takes the rank's name once there is one."""
        if self._has_rank or self._path is None or (rank := _rank()) is None:
            return
        path = self._path.with_name(self._path.name.replace(f"proc{os.getpid()}", f"rank{rank}"))
        self._path, self._has_rank = self._path.rename(path), True


def _public(module: Any) -> list[str]:
    return [name for name in module.__all__ if name[0].islower() and name not in _NO_NUMBERS]


def _rank() -> int | None:
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def _stack(frame: Any) -> str:
    """As stack.json has frames, innermost first; those without source are left out."""
    import linecache

    lines = []
    while frame is not None:
        code = frame.f_code
        source = linecache.getline(code.co_filename, frame.f_lineno).strip()
        if source:
            lines.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {source} \n")
        frame = frame.f_back
    return "".join(lines)


def random_state() -> dict[str, Any]:
    """The states of Python's, numpy's and torch's generators, those of devices among them."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if (numpy := _numpy()) is not None:
        state["numpy"] = numpy.random.get_state()
    for name in ("cuda", "npu"):
        if (device := _device(name)) is not None:
            state[name] = device.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        _numpy().random.set_state(state["numpy"])
    for name in ("cuda", "npu"):
        if name in state:
            getattr(torch, name).set_rng_state_all(state[name])


__all__ = ["random_save", "random_state", "restore_random_state", "seed_all"]
